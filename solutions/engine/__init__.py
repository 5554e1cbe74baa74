"""Reference solutions of the engine puzzles: one class in each file."""

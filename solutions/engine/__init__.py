"""Reference solutions of the engine puzzles, one class per file."""

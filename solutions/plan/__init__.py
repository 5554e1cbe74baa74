"""Reference solutions of the plan puzzles."""

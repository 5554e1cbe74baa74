"""Reference solutions of the layout puzzles."""

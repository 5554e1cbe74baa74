"""Reference solutions, one file per puzzle, and the records."""

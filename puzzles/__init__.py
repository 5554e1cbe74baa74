"""The game around the runtime: the catalog of puzzles, the grader, and the command line."""

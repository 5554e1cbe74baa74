"""The puzzles: a folder for each track, in it one for each chapter, with a file for each puzzle. Beside the classes' are
their trials, and what no class can do with less."""

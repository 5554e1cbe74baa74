"""The puzzles as data: a folder for each track, in it one for each chapter, with a file for each puzzle. A chapter of
classes also has their trials, and what no class can do with less."""

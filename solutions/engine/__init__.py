"""One solved class for each engine puzzle, in a file of its name in small letters."""

"""Record solutions: the best schedules known, one to three for each puzzle, which the catalog names."""

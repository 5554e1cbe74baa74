"""Record solutions: the best known schedules, one to three for each puzzle, named in the catalog."""

"""Record solutions: the best known schedules of each family, named in the catalog."""

"""Playing in a notebook: `play` runs, judges and shows a puzzle; `Book` makes the notebooks themselves."""

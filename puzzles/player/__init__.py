"""Playing in a notebook: `play` runs, judges and shows a puzzle; `Book` builds the notebooks themselves."""

"""Playing in a notebook: `play` runs, judges and shows a puzzle; `profile` reads a real run.

`Book` builds the notebooks themselves.
"""

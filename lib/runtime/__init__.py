"""The live half of a run: models, their storage and clocks, and where ranks meet."""

"""What a puzzle is: its statement, sizes, targets, hints and starter, in each track, and what reads its file."""

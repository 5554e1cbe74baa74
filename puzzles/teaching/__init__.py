"""A course: who handed in what, on a roster, and what it is worth."""

"""For teachers: puzzles of their own, and a class: who handed in what, what it is worth, pages, Gradescope."""

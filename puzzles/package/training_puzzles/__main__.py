"""`python -m training_puzzles` runs the `puzzles` command."""

from puzzles.__main__ import main

if __name__ == "__main__":
    main()

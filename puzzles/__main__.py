"""`python -m puzzles` is the command `puzzles`."""

from .cli import main

if __name__ == "__main__":
    main()

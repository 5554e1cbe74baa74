"""`python -m training_puzzles` is the command `puzzles`."""

from puzzles.commands.main import main

if __name__ == "__main__":
    main()

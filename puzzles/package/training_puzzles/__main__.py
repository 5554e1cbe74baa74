"""`python -m training_puzzles` runs the `puzzles` command."""

from puzzles.commands.main import main

if __name__ == "__main__":
    main()

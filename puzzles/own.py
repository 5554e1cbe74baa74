"""The former name of `puzzles.custom`, for notebooks that import it; it goes with the next release."""

from puzzles.custom import add_folder

__all__ = ["add_folder"]

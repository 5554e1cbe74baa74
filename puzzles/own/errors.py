"""The error of a folder or file of puzzles that cannot be used."""

from __future__ import annotations


class OwnPuzzleError(Exception):
    """A folder or file of puzzles that cannot be used; the text names the file, the field, and what to do."""

"""Puzzles of teachers: a folder with a file for each puzzle, in TOML or Python, becomes chapters of the tracks.

from puzzles.custom import add_folder
"""

from puzzles.catalog.fields import OwnPuzzleError

from .loaded import (
    FOLDERS_VARIABLE,
    OwnFolder,
    add_folder,
    add_installed,
    fault_in,
    folder_added,
    folders,
    home_of,
    remove_folder,
)

__all__ = [
    "FOLDERS_VARIABLE",
    "OwnFolder",
    "OwnPuzzleError",
    "add_folder",
    "add_installed",
    "fault_in",
    "folder_added",
    "folders",
    "home_of",
    "remove_folder",
]

"""The tracks of the game, and the registry that finds their puzzles by name.

from puzzles.tracks import Track, find, register
"""

from .base import Track
from .registry import (
    ALL,
    SHIPPED,
    TRACKS,
    UnknownPuzzleError,
    add_chapter,
    chapter_of,
    default_slugs,
    find,
    find_group,
    find_several,
    groups,
    near_group,
    register,
    registered,
    remove_chapter,
    track_of,
    unregister,
)
from .shown import OptionError, PuzzleGroup

__all__ = [
    "ALL",
    "SHIPPED",
    "TRACKS",
    "OptionError",
    "PuzzleGroup",
    "Track",
    "UnknownPuzzleError",
    "add_chapter",
    "chapter_of",
    "default_slugs",
    "find",
    "find_group",
    "find_several",
    "groups",
    "near_group",
    "register",
    "registered",
    "remove_chapter",
    "track_of",
    "unregister",
]

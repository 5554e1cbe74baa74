"""Finds the line of the player's code that is running."""

import os
import sys
from types import FrameType

MACHINERY = ("lib", "drawing", "puzzles", "numpy", "torch", "array_api_compat")
"""Packages whose lines are not a player's."""


def is_of_player(frame: FrameType) -> bool:
    """True if a frame is not of the engine or a library."""
    return frame.f_globals.get("__name__", "").partition(".")[0] not in MACHINERY


def player_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the player's code, from `frame` outwards."""
    while frame is not None and not is_of_player(frame):
        frame = frame.f_back
    return frame


def running_line() -> int:
    """The line of the device's code that is running; 0 if there is none: arguments are made before it is called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not is_of_player(frame):
        if frame.f_globals.get("__name__", "").startswith("lib.engine.executors."):
            return 0
        frame = frame.f_back
    return frame.f_lineno if frame is not None else 0


def player_line(frame: FrameType | None) -> str:
    """', line 12 of mine.py' for the innermost frame of the player's code; '' if there is none."""
    frame = player_frame(frame)
    return "" if frame is None else f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"


def current_player_line() -> str:
    """The same for the running code."""
    return player_line(sys._getframe(1))

"""Finds the line of the player's code that is running."""

import os
import sys
from functools import cache
from types import FrameType

MACHINERY = ("lib", "drawing", "puzzles", "numpy", "torch", "array_api_compat")
"""Packages whose lines are not a player's."""


@cache
def _is_machinery(module: str) -> bool:
    return module.partition(".")[0] in MACHINERY


@cache
def _calls_devices(module: str) -> bool:
    return module.startswith("lib.engine.executors.")


def is_of_player(frame: FrameType) -> bool:
    """True if a frame is not of the engine or a library."""
    return not _is_machinery(frame.f_globals.get("__name__", ""))


def player_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the player's code, from `frame` outwards."""
    while frame is not None and not is_of_player(frame):
        frame = frame.f_back
    return frame


def running_line() -> int:
    """The line of the device's code that is running. It is 0 while arguments are made, before the device's code is
    called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not _is_machinery(module):
            return frame.f_lineno
        frame = None if _calls_devices(module) else frame.f_back
    return 0


def player_line(frame: FrameType | None) -> str:
    """', line 12 of mine.py' for the innermost frame of the player's code; '' if there is none."""
    frame = player_frame(frame)
    return "" if frame is None else f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"


def current_player_line() -> str:
    return player_line(sys._getframe(1))

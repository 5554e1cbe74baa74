"""Where in the player's file a device is: the innermost line outside of this package."""

from __future__ import annotations

import os
import sys
from types import FrameType


def place_in(frame: FrameType | None) -> str:
    """', line 12 of mine.py', or nothing if the frame is not known."""
    while frame is not None:
        package = frame.f_globals.get("__package__") or ""
        if package != __package__ and "numpy" not in package.split(".")[:1]:
            return f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"
        frame = frame.f_back
    return ""


def place_here() -> str:
    """The same of the running code."""
    return place_in(sys._getframe(1))

"""Formats the engine's deadlock messages: which device waits in which call, and on which line of the player's file."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from types import FrameType

from lib.engine.call import CollectiveCall


def deadlock_text(devices: Iterable[str]) -> str:
    """The whole message, from the state of each device."""
    return f"nobody can move: {'; '.join(devices)}. Every wait needs a partner: check who calls what, and how often"


def returned_text(device: int) -> str:
    return f"device {device} has returned"


def waiting_text(device: int, call: object, size: int, line: str) -> str:
    """Describes the wait of one of `size` devices: a collective, with its group unless that is all, or a receive."""
    group = f" in group {call.group}" if isinstance(call, CollectiveCall) and len(call.group) < size else ""
    return f"device {device} waits in {call}{group}{line}"


def player_line(frame: FrameType | None) -> str:
    """', line 12 of mine.py' for the innermost frame outside the engine and numpy; '' if there is none."""
    while frame is not None:
        package = frame.f_globals.get("__package__") or ""
        if package.split(".")[:2] != ["lib", "engine"] and package.split(".")[0] != "numpy":
            return f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"
        frame = frame.f_back
    return ""


def current_player_line() -> str:
    """The same for the running code."""
    return player_line(sys._getframe(1))

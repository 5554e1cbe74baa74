"""Plays a schedule to its end, in a notebook too, whose own event loop is idle until the cell has ended."""

from __future__ import annotations

from typing import Any

from lib import Outcome, Setting, run


def played(schedule: Any, size: tuple[int, int, int], setting: Setting) -> Outcome:
    """A run in which no rank was refused.

    Raises:
        PuzzleError: one was.
    """
    import asyncio  # here, because it takes longer to import than all of lib

    loop = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    try:
        outcome = run(schedule, *size, setting=setting)
    finally:
        asyncio._set_running_loop(loop)
    if outcome.error is not None:
        raise outcome.error
    return outcome

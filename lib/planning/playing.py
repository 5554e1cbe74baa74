"""Plays a schedule of a plan to its end, in a notebook too."""

from __future__ import annotations

from typing import Any

from lib import Outcome, Setting


def played(schedule: Any, size: tuple[int, int, int], setting: Setting) -> Outcome:
    """A run in which no rank was refused.

    Raises:
        PuzzleError: one was.
    """
    from lib.runtime.nested import run_nested  # here, since asyncio takes longer to import than all of lib

    outcome = run_nested(schedule, *size, setting=setting)
    if outcome.error is not None:
        raise outcome.error
    return outcome

"""Plays the runs of a plan, and executes their traces again."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from lib import Outcome, Setting, Trace
from lib.errors import IncompleteError
from lib.judging.recompute import Recomputation


def played(schedule: Any, size: tuple[int, int, int], setting: Setting) -> Outcome:
    """A run in which no rank was refused, in a notebook too.

    Raises:
        PuzzleError: one was.
    """
    from lib.runtime.nested import run_nested  # here, since asyncio takes longer to import than all of lib

    outcome = run_nested(schedule, *size, setting=setting)
    if outcome.error is not None:
        raise outcome.error
    return outcome


def executed(trace: Trace, whole: bool = True) -> Recomputation:
    """A trace, executed again. It must end with everything that its task asks for, unless it is not `whole`.

    Raises:
        PuzzleError: something in it is against the rules.
    """
    recomputation = Recomputation(trace)
    if whole:
        recomputation.run()
    else:
        with suppress(IncompleteError):
            recomputation.run()
    return recomputation

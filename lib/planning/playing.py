"""Plays the runs of a plan, to measure them."""

from __future__ import annotations

from typing import Any

from lib import Outcome, Setting
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


def taken_over(outcome: Outcome) -> Recomputation:
    """What a run has made and stored, to be measured as the referee does. It is a schedule of ours, which the run has
    checked, so it is not executed again; the tests do that."""
    recomputation = Recomputation(outcome.trace)
    for state, model in zip(recomputation.ranks, outcome.models):
        state.values.update(enumerate(model.made))
        state.at = len(state.ops)
        state.liveness.advance(state.at)
    return recomputation

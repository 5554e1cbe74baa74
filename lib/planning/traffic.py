"""Plays the runs of a plan, and measures what each rank sends, operation by operation, by re-executing the trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

from lib import Outcome, Setting, Trace
from lib.communication.meetings import members_of
from lib.errors import IncompleteError
from lib.game.costs import elements_sent
from lib.judging.rank_state import RankState
from lib.judging.recompute import Recomputation
from lib.rules.collectives import COLLECTIVES
from lib.trace.ops import group_of


class Sent(NamedTuple):
    """Elements that a rank sends in one operation, which starts at a tick."""

    operation: str
    start: int
    elements: int


COPIES = ("offload", "fetch")


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


def sent_by(recomputation: Recomputation, rank: RankState) -> Iterator[Sent]:
    """What a rank sends to other ranks, or copies to and from another memory, in the order of its program."""
    costs = recomputation.costs
    for op in rank.done:
        if op.name in COLLECTIVES:
            members = len(members_of(recomputation.game, group_of(op)))
            elements = sum(rank.values[number].memory(costs) for number in op.inputs)
            yield Sent(op.name, op.start, elements_sent(op.name, elements, members))
        elif op.name == "pass_to":
            yield Sent(op.name, op.start, sum(rank.values[number].memory(costs) for number in op.inputs))
        elif op.name in COPIES:
            (moved,) = op.outputs if op.name == "fetch" else op.inputs
            yield Sent(op.name, op.start, rank.values[moved].memory(costs))

"""What each rank of a run sends, operation by operation: measured by re-executing its trace."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from lib import Trace
from lib.communication.meetings import reach
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
            members = len(reach(recomputation.game, group_of(op)))
            elements = sum(rank.values[number].memory(costs) for number in op.used)
            yield Sent(op.name, op.start, elements_sent(op.name, elements, members))
        elif op.name == "pass_to":
            yield Sent(op.name, op.start, sum(rank.values[number].memory(costs) for number in op.used))
        elif op.name in COPIES:
            (moved,) = op.made if op.name == "fetch" else op.used
            yield Sent(op.name, op.start, rank.values[moved].memory(costs))

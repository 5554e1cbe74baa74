"""Refuses to store what a rank has not made or may not store yet, and to delete what is not there."""

from __future__ import annotations

from collections.abc import Iterable

from lib.errors import RuleError, TraceError
from lib.trace.ops import NO_BATCHES, Op
from lib.values.kinds import HOLDS

from .rank_state import RankState


def follow_stored(rank: RankState) -> None:
    """Follows a rank's storage through its next operation, which stores or deletes.

    Raises:
        PuzzleError: what is wrong with that record.
    """
    rank.liveness.advance(rank.at)
    try:
        rank.liveness.advance(rank.at + 1)
    except TraceError:
        _explain(rank, rank.op)
        raise


def _explain(rank: RankState, op: Op) -> None:
    """Says what is wrong with a record of storing or deleting."""
    timeless = op.start == rank.clock == op.end and op.layer is None and op.batches == NO_BATCHES
    if not timeless or op.outputs != () or len(op.args) != 2 or type(op.inputs) is not tuple:
        raise TraceError(f"to {op.name} takes no time, and makes nothing; this record is {op}")
    if op.name == "delete":
        raise RuleError("nothing is stored under this key")
    (number,), where = op.inputs, op.args[0]
    value = rank.values.get(number)
    if value is None:
        raise TraceError(f"it stores value {number}, which this rank has not made")
    if HOLDS.get(where) is not type(value):
        raise RuleError(f"{where} does not hold {value.kind}")
    refuse_pending(rank, op.inputs)
    refuse_handmade(rank, op)


def refuse_pending(rank: RankState, numbers: Iterable[int]) -> None:
    """Refuses to use what a call makes before that call has been awaited."""
    if pending := rank.pending.keys() & {*numbers}:
        raise RuleError(f"the {rank.values[min(pending)]} is still pending; await it first")


def refuse_handmade(rank: RankState, op: Op) -> None:
    """Refuses to use what no operation made."""
    for number in rank.handmade.intersection(op.inputs):
        raise RuleError(
            f"the {rank.values[number]} was made by hand or by a model of another Dist; "
            "in a puzzle, get it from this model's own operations"
        )

"""The training step that each operation of a run belongs to, by the values that it uses and makes."""

from collections.abc import Iterator
from typing import Any

from lib.trace.ops import Op, Trace
from lib.values.base import Value
from lib.values.kinds import OptState, Parked, Weight

from .rank_state import RankState
from .recompute import executed


def event_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each rank, the step of each of its operations, as far as the trace is legal.

    Data and gradients carry their step. An operation on weights alone belongs to the step that computes with these
    weights; an average of replicas, and what comes after the last update, to the step that has just ended.
    """
    last = trace.setting.steps - 1
    return tuple(tuple(min(last, _step(op, rank)) for op in rank.done) for rank in executed(trace))


def old_versions(trace: Trace) -> tuple[frozenset[int], ...]:
    """For each rank, the places of the forwards whose weight is older than the data, as far as the trace is legal."""
    return tuple(frozenset(_made_with_old(rank)) for rank in executed(trace))


def _made_with_old(rank: RankState) -> Iterator[int]:
    for at, op in enumerate(rank.done):
        if op.name == "forward" and getattr(rank.values[op.outputs[0]], "version", None) is not None:
            yield at


def _step(op: Op, rank: RankState) -> int:
    values = [_unparked(rank.values[number]) for number in (*op.inputs, *op.outputs)]
    data = [value.step for value in values if not isinstance(value, (Weight, OptState))]
    if data or not values:
        return data[0] if data else 0
    return int(values[0].step) - (op.name == "allreduce")


def _unparked(value: Value) -> Any:
    """A value, or the one that was parked; each has a step."""
    return value.value if isinstance(value, Parked) else value

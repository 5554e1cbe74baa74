"""The training step of each operation in a run, from the values that it uses and makes."""

from collections.abc import Iterator
from typing import Any

from lib.rules.collectives import SUMMING
from lib.trace.ops import Trace
from lib.values.kinds import Stepped

from .rank_state import RankState, unparked
from .recompute import executed


def event_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each rank, the step of each operation, as far as the trace is legal.

    Data and gradients carry their step. An operation on weights alone belongs to the step that computes with these
    weights. An average of replicas, and operations after the last update, belong to the step that has just ended.
    """
    last, takes_turns = trace.setting.steps - 1, trace.setting.task == "outer"
    return tuple(tuple(min(last, step) for step in _steps(rank, takes_turns)) for rank in executed(trace))


def _steps(rank: RankState, takes_turns: bool) -> Iterator[int]:
    """With outer steps, operations on weights alone belong to the step of the operation before them."""
    step = 0
    for op in rank.done:
        values: list[Any] = [unparked(rank.values[number]) for number in (*op.inputs, *op.outputs)]
        data = [value.step for value in values if not isinstance(value, Stepped)]
        if data or not values:
            step = data[0] if data else step if takes_turns else 0
        elif not takes_turns:
            step = int(values[0].step) - (op.name in SUMMING)
        yield step


def old_versions(trace: Trace) -> tuple[frozenset[int], ...]:
    """For each rank, the indices of forwards whose weight is older than the data, as far as the trace is legal."""
    return tuple(frozenset(_made_with_old(rank)) for rank in executed(trace))


def _made_with_old(rank: RankState) -> Iterator[int]:
    for at, op in enumerate(rank.done):
        if op.name == "forward" and getattr(rank.values[op.outputs[0]], "version", None) is not None:
            yield at

"""The timetable of a run: what each rank computed, in order."""

from collections.abc import Iterator

from lib.errors import RuleError
from lib.game.costs import PAIR
from lib.trace.ops import Op, Trace, halves

from .cells import Cell, Slot
from .timetable import Timetable

LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def timetable_of(trace: Trace, stages: int) -> Timetable:
    """The timetable of the first training step of a run, whose layers are cut into equal stages.

    Raises:
        RuleError: it has none: a rank computes several microbatches at once, or something twice, or a layer amid
            another stage; or later steps have another order.
        DeadlockError: its order has messages that wait for each other.
    """
    depth, left = divmod(trace.size.layers, stages)
    if left:
        raise RuleError(f"{trace.size.layers} layers cannot be cut into {stages} equal stages")
    rows = [list(_cells(rank, ops, depth)) for rank, ops in enumerate(trace.ranks)]
    steps = trace.setting.steps
    for rank, row in enumerate(rows):
        once = row[: len(row) // steps]
        if row != once * steps:
            raise RuleError(f"rank {rank} computes another order in a later step; a timetable has one order for all")
        rows[rank] = once
    return Timetable.of(rows)


def _cells(rank: int, ops: tuple[Op, ...], depth: int) -> Iterator[Cell | Slot]:
    """The cells of a rank: each is its layers, one right after the other. A pair of single layers is a slot of two."""
    done: list[int] = []
    cell = None
    for op in ops:
        if op.name == PAIR:
            if depth > 1 or done:
                raise RuleError(f"rank {rank} pairs layers of stages with {depth} layers; a pair is of whole stages")
            yield tuple(Cell(one.layer or 0, LETTERS[one.name], *one.batches) for one in halves(op))
        if op.name not in LETTERS or op.layer is None:
            continue
        if len(op.batches) != 1:
            raise RuleError(f"rank {rank} computes {len(op.batches)} microbatches in one {op.name}; take one at a time")
        here = Cell(op.layer // depth, LETTERS[op.name], *op.batches)
        if done and here != cell:
            raise RuleError(f"rank {rank} begins {here} before it has computed all {depth} layers of {cell}")
        cell = here
        done.append(op.layer)
        if len(done) == depth:
            yield cell
            done = []
    if done:
        raise RuleError(f"rank {rank} never computes all {depth} layers of {cell}")

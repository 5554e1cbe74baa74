"""Derives which rows or batches every value of a trace holds: what a replay must know before it can move tensors.

It follows the operations without checking the rules, so that a refused trace can be followed too, as far as it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lib.errors import TraceError
from lib.trace import Op, Trace
from lib.trace_walk import Cursor, Walk

Label = tuple[int, ...]
"""The rows of a weight, a state or a gradient; or the batches of an activation or its gradient."""


@dataclass(slots=True, eq=False)
class RankPlacement(Cursor):
    """One rank: a label for each value by its number."""

    labels: dict[int, Label] = field(default_factory=dict)
    batched: set[int] = field(default_factory=set)
    """The numbers of the values whose labels are batches; all others have rows."""
    brought: dict[int, list[Label]] = field(default_factory=dict)
    """By number of the value that a collective creates: the labels of what all ranks contribute."""


class Placement(Walk[RankPlacement]):
    """The labels of all values of a trace, whose weights have `hidden` rows; `ranks` holds those of each rank.

    Raises:
        TraceError: rows cannot be cut as in the trace, a value was created by hand, or a rank waits forever.
    """

    def __init__(self, trace: Trace, hidden: int) -> None:
        self.ranks = [RankPlacement(rank, ops) for rank, ops in enumerate(trace.ranks)]
        super().__init__(self.ranks, buffered=True)  # as the engine's sends are
        self.hidden = hidden
        for stuck in self.walk():
            raise TraceError(f"rank {stuck.rank} can never get past {stuck.op.call()}; no other rank joins it there")

    def alone(self, cursor: RankPlacement, op: Op) -> None:
        used = [cursor.labels[number] for number in op.used]
        cursor.labels.update(zip(op.made, self._made(op, used)))
        if op.name in ("get_activation", "forward", "loss", "backward"):
            cursor.batched.add(op.made[-1])

    def meet(self, cursors: Sequence[RankPlacement]) -> list[list[Label]]:
        brought = [rank.labels[rank.op.used[0]] for rank in cursors]
        return [brought] * len(cursors)

    def met(self, cursor: RankPlacement, op: Op, result: list[Label]) -> None:
        (made,) = op.made
        cursor.brought[made] = result
        if op.name == "allgather":
            label = tuple(sorted(row for part in result for row in part))
        elif op.name == "scatterreduce":
            label = self._rows(cursor.rank, len(result))
        else:
            label = result[cursor.rank]
        cursor.labels[made] = label

    def received(self, cursor: RankPlacement, op: Op, sender: RankPlacement, sent_at: int) -> None:
        for theirs, own in zip(sender.ops[sent_at].used, op.made):
            cursor.labels[own] = sender.labels[theirs]
            if theirs in sender.batched:
                cursor.batched.add(own)

    def _rows(self, shard: int, total: int) -> Label:
        if self.hidden % total:
            raise TraceError(
                f"{self.hidden} rows cannot be cut into {total} equal shards; replay a count that divides them"
            )
        each = self.hidden // total
        return tuple(range(shard * each, (shard + 1) * each))

    def _made(self, op: Op, used: list[Label]) -> list[Label]:
        whole = self._rows(0, 1)
        match op.name:
            case "load_weights":
                return [self._rows(*op.args)] * 2
            case "get_activation":
                return [tuple(sorted(op.batches))]
            case "fake_grad":
                return [whole]
            case "backward":
                return [whole, used[1]]
            case "update":
                return [used[1], used[1]]
            case "combine":
                return [tuple(sorted({*used[0], *used[1]}))]
            case "shard":
                return [self._rows(*op.args)]
            case "given":
                raise TraceError("this trace uses a value that was created by hand, so there is no tensor for it")
            case _:  # forward, loss, add; or no new value
                return used[:1]


def rows_of(label: Label, wanted: Label) -> Any:
    """The index of the wanted rows in a tensor that holds `label`: a slice if they are next to each other.

    Raises:
        TraceError: some are missing.
    """
    if label == wanted:
        return slice(None)
    place = {row: i for i, row in enumerate(label)}
    try:
        places = [place[row] for row in wanted]
    except KeyError:
        raise TraceError(f"rows {wanted[0]} to {wanted[-1]} are not in a tensor with {len(label)} rows") from None
    return slice(places[0], places[-1] + 1) if places[-1] - places[0] + 1 == len(places) else places

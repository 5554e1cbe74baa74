"""Which rows or batches every value of a trace holds: what a replay must know before tensors can move.

Follows the operations without the rules, so that a refused trace can be followed as well, as far as it can run.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from lib.errors import TraceError
from lib.trace import Op, Trace

Label = tuple[int, ...]
"""The rows of a weight, a state or a gradient; or the batches of an activation or its gradient."""

COLLECTIVE = frozenset(("allreduce", "allgather", "scatterreduce"))


class Plan:
    """Per rank: a label for each value by its number, and for each collective by its index the labels of all."""

    def __init__(self, trace: Trace, hidden: int) -> None:
        self.trace = trace
        self.hidden = hidden
        ranks = range(len(trace.ranks))
        self.labels: list[dict[int, Label]] = [{} for _ in ranks]
        self.batched: list[set[int]] = [set() for _ in ranks]
        """The numbers of the values whose labels are batches; all others have rows."""
        self.brought: list[dict[int, list[Label]]] = [{} for _ in ranks]
        self._at = [0] * len(trace.ranks)
        self._mail: dict[tuple[int, int], deque[list[tuple[Label, bool]]]] = {}
        self._meeting: dict[int, Op] = {}
        self._follow()

    def _follow(self) -> None:
        moved = True
        while moved:
            moved = False
            for rank, ops in enumerate(self.trace.ranks):
                while self._at[rank] < len(ops) and self._step(rank, ops[self._at[rank]]):
                    self._at[rank] += 1
                    moved = True
        for rank, ops in enumerate(self.trace.ranks):
            if self._at[rank] < len(ops):
                raise TraceError(f"rank {rank} can never get past {ops[self._at[rank]].call()}; nobody joins it there")

    def _step(self, rank: int, op: Op) -> bool:
        labels = self.labels[rank]
        used = [labels[number] for number in op.used]
        if op.name in COLLECTIVE:
            return self._meet(rank, op)
        if op.name == "receive":
            box = self._mail.get((op.args[0], rank))
            if not box:
                return False
            sent = box.popleft()
            made = [label for label, _ in sent]
            self.batched[rank].update(number for number, (_, batched) in zip(op.made, sent) if batched)
        elif op.name == "pass_to":
            self._mail.setdefault((rank, op.args[0]), deque()).append(
                [(labels[number], number in self.batched[rank]) for number in op.used]
            )
            made = []
        else:
            made = self._made(op, used)
            if op.name in ("get_activation", "forward", "loss", "backward"):
                self.batched[rank].add(op.made[-1])
        labels.update(zip(op.made, made))
        return True

    def _meet(self, rank: int, op: Op) -> bool:
        self._meeting[rank] = op
        if len(self._meeting) < len(self.labels):
            return False
        meeting, self._meeting = self._meeting, {}
        brought = [self.labels[r][meeting[r].used[0]] for r in range(len(self.labels))]
        for r, other in meeting.items():
            if other.name == "allgather":
                self.labels[r][other.made[0]] = tuple(sorted(row for label in brought for row in label))
            elif other.name == "scatterreduce":
                self.labels[r][other.made[0]] = self._rows(r, len(brought))
            else:
                self.labels[r][other.made[0]] = brought[r]
            self.brought[r][self._at[r]] = brought
            if r != rank:
                self._at[r] += 1
        return True

    def _rows(self, shard: int, total: int) -> Label:
        if self.hidden % total:
            raise TraceError(f"{self.hidden} rows cannot be cut into {total} equal shards; replay a count that divides")
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
                raise TraceError("this trace uses a value that was made by hand; no tensor belongs to it")
            case _:  # forward, loss, add; or nothing is made
                return used[:1]


def last_uses(ops: tuple[Op, ...]) -> list[int]:
    """By number of the value: the index of its last use; final weights are used to the end."""
    last = [-1] * (1 + max((number for op in ops for number in op.made), default=-1))
    for i, op in enumerate(ops):
        for number in op.used:
            last[number] = len(ops) if op.name == "set_final_weight" else max(last[number], i)
    return last


def rows_of(label: Label, wanted: Label) -> Any:
    """Where the wanted rows are in a tensor that holds `label`: a slice if they stand together.

    Raises:
        TraceError: some are not there.
    """
    if label == wanted:
        return slice(None)
    place = {row: i for i, row in enumerate(label)}
    try:
        places = [place[row] for row in wanted]
    except KeyError:
        raise TraceError(f"rows {wanted[0]} to {wanted[-1]} are not in a tensor with {len(label)} rows") from None
    return slice(places[0], places[-1] + 1) if places[-1] - places[0] + 1 == len(places) else places

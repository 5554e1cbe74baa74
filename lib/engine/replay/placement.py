"""Derives what every tensor of a trace holds, and when its calls run: what a replay must know before tensors can move.

It follows the operations without checking the rules, so that a refused trace can be followed too, as far as it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lib.communication.lanes import Call
from lib.errors import TraceError
from lib.rules.collectives import COLLECTIVES, Group
from lib.trace.ops import Op, Trace

from .labels import Held, Label, Parked, Rows, Shape, Tokens, all_batches, as_tokens, cut, held, share, union
from .unchecked_walk import UncheckedCursor, UncheckedWalk


class Meeting(NamedTuple):
    """One tensor's part in a collective: the group, this rank's place in it, and what all bring and get."""

    group: Group
    place: int
    brought: Sequence[Held]
    made: Sequence[Held]


@dataclass(slots=True, eq=False)
class RankPlacement(UncheckedCursor):
    """One rank: a label for each value by its number, and what the rank does, in order."""

    labels: dict[int, Label] = field(default_factory=dict)
    meetings: dict[int, Meeting] = field(default_factory=dict)
    """By number of a value that a collective makes."""
    script: list[int] = field(default_factory=list)
    """The index i of each operation in turn; of one that runs on a lane, its call, which runs later at ~i. All ranks
    can follow their scripts with blocking calls: there is one order of everything that agrees with each."""


class Placement(UncheckedWalk[RankPlacement]):
    """The labels of all values of a trace with tensors of some shape; `ranks` holds those of each rank.

    Raises:
        TraceError: a tensor cannot be cut as the trace does, a value was made by hand, or a rank waits for ever.
    """

    def __init__(self, trace: Trace, shape: Shape) -> None:
        self.ranks = [RankPlacement(rank, ops) for rank, ops in enumerate(trace.ranks)]
        self.shape = shape
        self.tags: list[dict[int, list[int]]] = [{} for _ in trace.ranks]
        """By receiver and sender: the tags of their messages, in the order of sending."""
        super().__init__(self.ranks, trace)
        for stuck in self.walk():
            raise TraceError(f"rank {stuck.rank} can never get past {stuck.op.call()}; no other rank joins it there")
        if not self.on_lanes:
            for rank in self.ranks:
                rank.script = list(range(len(rank.ops)))

    def rows(self, shard: int = 0, total: int = 1) -> tuple[int, ...]:
        return tuple(share(self.shape.hidden, shard, total))

    def tokens(self, shard: int = 0, total: int = 1) -> tuple[int, ...]:
        return tuple(share(self.shape.length, shard, total))

    # --- The walk ---

    def visit(self, cursor: RankPlacement, op: Op) -> bool:
        at, visited = cursor.at, super().visit(cursor, op)
        if visited and self.on_lanes and op.name not in self.on_lanes:
            cursor.script.append(at)
        return visited

    def on_call(self, cursor: RankPlacement, op: Op) -> Call:
        if self.on_lanes:
            cursor.script.append(cursor.at)
        return super().on_call(cursor, op)

    def on_local(self, cursor: RankPlacement, op: Op) -> None:
        used = [cursor.labels[number] for number in op.used]
        cursor.labels.update(zip(op.made, self._alone(op, used)))

    def on_send(self, cursor: RankPlacement, op: Op) -> None:
        to, *tag = op.args
        self.tags[to].setdefault(cursor.rank, []).append(*(tag or (0,)))

    def on_receive(self, cursor: RankPlacement, op: Op, sender: RankPlacement, sent_at: int) -> None:
        cursor.labels.update(zip(op.made, [sender.labels[number] for number in sender.ops[sent_at].used]))

    def value(self, cursor: RankPlacement, number: int) -> Label:
        return cursor.labels[number]

    def perform(self, calls: Sequence[Call]) -> list[tuple[Any, ...]]:
        first = calls[0]
        if first.name not in COLLECTIVES:
            return [tuple(self._alone(first.op, list(_values(first))))]
        group, columns = tuple(call.rank for call in calls), []
        for n in range(len(first.op.made)):
            brought = [held(_values(call)[n]) for call in calls]
            made = [MEETING[call.name](brought, i, call.op) for i, call in enumerate(calls)]
            for i, call in enumerate(calls):
                self.ranks[call.rank].meetings[call.op.made[n]] = Meeting(group, i, brought, made)
            columns.append(made)
        return list(zip(*columns))

    def on_end(self, cursor: RankPlacement, call: Call) -> None:
        cursor.labels.update(zip(call.op.made, _values(call, "made")))
        if call.name == "pass_to":
            self.on_send(cursor, call.op)
        if call.name in self.on_lanes:
            cursor.script.append(~call.at)

    def _alone(self, op: Op, used: list[Label]) -> Sequence[Label]:
        makes = ALONE.get(op.name)
        return () if makes is None else makes(self, op, used)


def _values(call: Call, which: str = "values") -> tuple[Any, ...]:
    """What stands for a call's values in this walk: labels."""
    found: tuple[Any, ...] = getattr(call, which)
    return found


# --- What an operation makes of what it is given -----------------------------------------------------------


def _loaded(placement: Placement, op: Op, used: Sequence[Label]) -> list[Label]:
    shard, total, *tier = op.args
    made = [Rows(kind, placement.rows(shard, total)) for kind in ("weight", "state")]
    return [Parked(one, tier[0]) for one in made] if tier and tier[0] is not None else list(made)


def _input(placement: Placement, op: Op, used: Sequence[Label]) -> list[Label]:
    step = op.args[0] if op.args else 0
    return [Tokens(step, tuple(sorted(op.batches)), placement.tokens())]


def _shard(placement: Placement, op: Op, used: Sequence[Label]) -> list[Label]:
    label = held(used[0])
    shard, total = op.args
    wanted = placement.rows(shard, total) if isinstance(label, Rows) else placement.tokens(shard, total)
    return [label._replace(places=wanted)]


def _given(placement: Placement, op: Op, used: Sequence[Label]) -> list[Label]:
    raise TraceError("this trace uses a value that was made by hand; no tensor belongs to it")


def _weight_grad(placement: Placement, op: Op, used: Sequence[Label]) -> Label:
    """Of a layer that can be cut, of the rows of its weight."""
    return Rows("grad", held(used[2]).places if len(used) > 2 else placement.rows())


ALONE: Mapping[str, Callable[[Placement, Op, Sequence[Label]], Sequence[Label]]] = {
    "load_weights": _loaded,
    "get_activation": _input,
    "fake_grad": lambda placement, op, used: [Rows("grad", placement.rows())],
    "forward": lambda placement, op, used: used[:1],
    "loss": lambda placement, op, used: used[:1],
    "backward": lambda placement, op, used: [_weight_grad(placement, op, used), used[0]],
    "backward_input": lambda placement, op, used: used[:1],
    "backward_weight": lambda placement, op, used: [_weight_grad(placement, op, used)],
    "update": lambda placement, op, used: [Rows(kind, held(used[1]).places) for kind in ("weight", "state")],
    "add": lambda placement, op, used: used[:1],
    "combine": lambda placement, op, used: [union([held(label) for label in used])],
    "shard": _shard,
    "offload": lambda placement, op, used: [Parked(held(used[0]), op.args[0])],
    "fetch": lambda placement, op, used: [used[0].held if isinstance(used[0], Parked) else used[0]],
    "given": _given,
}
"""The labels of what an operation of one rank makes; others make nothing."""


def _dispatched(brought: Sequence[Held], place: int, op: Op) -> Held:
    mine = as_tokens(cut(brought[place], place, len(brought)))
    return mine._replace(batches=all_batches(brought))


def _collected(brought: Sequence[Held], place: int, op: Op) -> Held:
    return as_tokens(union(brought))._replace(batches=tuple(sorted(op.batches)))


MEETING: Mapping[str, Callable[[Sequence[Held], int, Op], Held]] = {
    "allreduce": lambda brought, place, op: brought[place],
    "allgather": lambda brought, place, op: union(brought),
    "scatterreduce": lambda brought, place, op: cut(brought[place], place, len(brought)),
    "dispatch": _dispatched,
    "collect": _collected,
}
"""What the rank at a place of a group gets from a collective, of what all bring."""

"""Derives the content of every tensor of a trace, and the order of its calls, before a replay moves any tensor.

It follows the operations without checking the rules, so that a refused trace can be followed too, as far as it runs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from lib.communication.lanes import Call
from lib.errors import TraceError
from lib.rules.collectives import COLLECTIVES, Group
from lib.rules.rooted import ROOT_OF, is_last, next_member, root_in
from lib.trace.lifetimes import lifetimes
from lib.trace.ops import Op, Trace, halves

from .labels import (
    Content,
    Label,
    OnTier,
    Rows,
    Tokens,
    all_batches,
    as_rows,
    as_tokens,
    content,
    cut,
    held,
    share,
    union,
)
from .unchecked_walk import UncheckedCursor, UncheckedWalk
from .vocabulary import width
from .workload import Shapes

CHAIN = -1
"""The tag of what a broadcast or a reduce sends from one rank to the next; messages have tags from 0 on."""


class TensorExchange(NamedTuple):
    """One tensor's part in a collective: the group, this rank's position in it, and all ranks' inputs and results."""

    group: Group
    place: int
    brought: Sequence[Content]
    made: Sequence[Content]


@dataclass(slots=True, eq=False)
class RankLabels(UncheckedCursor):
    """One rank: a label for each value by its number, and the rank's operations in order."""

    labels: dict[int, Label] = field(default_factory=dict)
    exchanges: dict[int, TensorExchange] = field(default_factory=dict)
    """By the number of a value that a collective makes."""
    script: list[int] = field(default_factory=list)
    """The index i of each operation in turn. A call that runs on a lane appears twice: as i where it is made, and as ~i
    where it runs. All ranks can follow their scripts with blocking calls, because one order of all operations agrees
    with each script."""

    def freed_after(self) -> dict[int, list[int]]:
        """By entry of the script: the numbers of the values that are not needed after it. Values that a later-running
        call uses are needed until it runs; in a legal trace, until the call is awaited."""
        freed: dict[int, list[int]] = {}
        later = {~entry for entry in self.script if entry < 0}
        for number, _, until in lifetimes(self.ops).held:
            runs_later = until in later and number in self.ops[until].inputs
            freed.setdefault(~until if runs_later else until, []).append(number)
        return freed


class LabelWalk(UncheckedWalk[RankLabels]):
    """The labels of all values of a trace with tensors of some shape, by rank."""

    def __init__(self, trace: Trace, shapes: Shapes) -> None:
        self.ranks = [RankLabels(rank, ops) for rank, ops in enumerate(trace.ranks)]
        self.shapes, self.shares = shapes, trace.setting.shares
        self.tags: list[dict[int, list[int]]] = [{} for _ in trace.ranks]
        """By receiver and sender: the tags of their messages, in the order of sending."""
        super().__init__(self.ranks, trace)
        for stuck in self.walk():
            raise TraceError(f"rank {stuck.rank} can never get past {stuck.op.call()}; no other rank joins it there")
        if not self.on_lanes:
            for rank in self.ranks:
                rank.script = list(range(len(rank.ops)))

    def rows(self, kind: str, op: Op, shard: int = 0, total: int = 1) -> Rows:
        """The label of a shard of a tensor that is shaped like the weight of an operation's layer."""
        of = self.shapes.rows(op.layer or 0)
        return Rows(kind, tuple(share(of, shard, total)), of)

    def tokens(self, shard: int = 0, total: int = 1) -> tuple[int, ...]:
        return tuple(share(self.shapes.length, shard, total))

    def of_layer(self, label: Label, layer: int) -> Label:
        """The same tokens, with the width of a layer's input."""
        return label._replace(width=self.shapes.width(layer)) if isinstance(label, Tokens) else label

    # --- The walk ---

    def visit(self, cursor: RankLabels, op: Op) -> bool:
        at, visited = cursor.at, super().visit(cursor, op)
        if visited and self.on_lanes and op.name not in self.on_lanes:
            cursor.script.append(at)
        return visited

    def on_call(self, cursor: RankLabels, op: Op) -> Call:
        if self.on_lanes:
            cursor.script.append(cursor.at)
        return super().on_call(cursor, op)

    def on_local(self, cursor: RankLabels, op: Op) -> None:
        used = [cursor.labels[number] for number in op.inputs]
        cursor.labels.update(zip(op.outputs, self._alone(op, used)))

    def on_send(self, cursor: RankLabels, op: Op) -> None:
        to, *tag = op.args
        self.tags[to].setdefault(cursor.rank, []).append(*(tag or (0,)))

    def on_receive(self, cursor: RankLabels, op: Op, sender: RankLabels, sent_at: int) -> None:
        cursor.labels.update(zip(op.outputs, [sender.labels[number] for number in sender.ops[sent_at].inputs]))

    def value(self, cursor: RankLabels, number: int) -> Label:
        return cursor.labels[number]

    def perform(self, calls: Sequence[Call]) -> list[tuple[Any, ...]]:
        first = calls[0]
        if first.name not in COLLECTIVES:
            return [tuple(self._alone(first.op, list(_values(first))))]
        group, columns = tuple(call.rank for call in calls), []
        if first.name in ROOT_OF:
            return self._rooted(calls, group)
        for n in range(len(first.op.outputs)):
            brought = [held(_values(call)[n]) for call in calls]
            made = [COLLECTIVE_LABELS[call.name](brought, i, call.op) for i, call in enumerate(calls)]
            for i, call in enumerate(calls):
                self.ranks[call.rank].exchanges[call.op.outputs[n]] = TensorExchange(group, i, brought, made)
            columns.append(made)
        return list(zip(*columns))

    def _rooted(self, calls: Sequence[Call], group: tuple[int, ...]) -> list[tuple[Any, ...]]:
        """A broadcast or a reduce: a message along each link of its chain, and the label of what is brought."""
        root = root_in(calls[0].name, calls[0].op.args) or 0
        brought = [held(value) for call in calls for value in _values(call)]
        made = [_of_copies(brought, 0)] * len(calls)
        for call in calls:
            if not is_last(call.name, call.rank, group, root):
                self.tags[next_member(call.rank, group)].setdefault(call.rank, []).append(CHAIN)
        return [tuple(made[: len(call.op.outputs)]) for call in calls]

    def on_end(self, cursor: RankLabels, call: Call) -> None:
        cursor.labels.update(zip(call.op.outputs, _values(call, "outputs")))
        if call.name == "pass_to":
            self.on_send(cursor, call.op)
        if call.name in self.on_lanes:
            cursor.script.append(~call.at)

    def _alone(self, op: Op, used: list[Label]) -> Sequence[Label]:
        makes = LOCAL_LABELS.get(op.name)
        return () if makes is None else makes(self, op, used)


def _values(call: Call, which: str = "values") -> tuple[Any, ...]:
    """The values of a call, which are labels in this walk."""
    found: tuple[Any, ...] = getattr(call, which)
    return found


# --- What an operation makes of what it is given -----------------------------------------------------------


def _loaded(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    shard, total, *tier = op.args
    made = [walk.rows(kind, op, shard, total) for kind in ("weight", "state", "outer")[: len(op.outputs)]]
    return [OnTier(one, tier[0]) for one in made] if tier and tier[0] is not None else list(made)


def _input(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    step = (op.args and op.args[0]) or 0
    batches, lengths = tuple(sorted(op.batches)), walk.shapes.lengths
    places = tuple(range(sum(map(walk.shapes.tokens, batches)))) if lengths else walk.tokens()
    if len(op.args) > 1:
        places = tuple([place for one in op.args[1] for place in walk.tokens(one, walk.shares)])
    return [Tokens(step, batches, places, bool(lengths), walk.shapes.width(0))]


def _shard(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    label = held(used[0])
    shard, total = op.args
    wanted = tuple(share(label.of, shard, total)) if isinstance(label, Rows) else walk.tokens(shard, total)
    return [label._replace(places=wanted)]


def _given(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    raise TraceError("this trace uses a value that was made by hand, which has no tensor")


def _weight_grad(walk: LabelWalk, op: Op, used: Sequence[Label]) -> Label:
    """The weight gradient. In a layer that can be split it has the rows of the weight; in a split head, the rows of the
    scores."""
    if rows := as_tokens(used[1]).vocabulary:
        return walk.rows("grad", op)._replace(places=rows)
    return as_rows(held(used[2]))._replace(kind="grad") if len(used) > 2 else walk.rows("grad", op)


def _outputs(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    """The next layer's input; for some rows of a head, their scores."""
    rows = as_rows(held(used[1]))
    if len(rows.places) < rows.of and walk.shapes.is_logits((op.layer or 0) + 1):
        return [as_tokens(used[0])._replace(width=len(rows.places), vocabulary=rows.places)]
    return [walk.of_layer(used[0], (op.layer or 0) + 1)]


def _input_grad(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    if as_tokens(used[1]).vocabulary:
        return [as_tokens(used[0])._replace(width=width(walk.shapes.hidden), vocabulary=())]
    return list(used[:1])


def _attended(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    queries, *blocks, _ = map(as_tokens, used)
    return [queries, *[block._replace(queries=queries.places) for block in blocks]]


def _added(walk: LabelWalk, op: Op, used: Sequence[Label]) -> list[Label]:
    one, other = used
    if isinstance(one, Rows):
        return [_of_copies(used, 0)]
    if isinstance(one, Tokens) and isinstance(other, Tokens) and one.queries and other.queries:
        return [one._replace(queries=tuple(sorted(one.queries + other.queries)))]
    return [one]


def _of_copies(labels: Sequence[Label], place: int) -> Content:
    """One of several labels whose tensors are added; an outer gradient counts the copies of all."""
    mine = held(labels[place])
    is_delta = isinstance(mine, Rows) and mine.kind == "delta"
    return as_rows(mine)._replace(copies=sum(as_rows(one).copies for one in labels)) if is_delta else mine


LOCAL_LABELS: Mapping[str, Callable[[LabelWalk, Op, Sequence[Label]], Sequence[Label]]] = {
    "load_weights": _loaded,
    "get_activation": _input,
    "fake_grad": lambda walk, op, used: [walk.rows("grad", op)],
    "forward": _outputs,
    "loss": lambda walk, op, used: used[:1],
    "backward": lambda walk, op, used: [_weight_grad(walk, op, used), used[0]],
    "pair": lambda walk, op, used: [
        label
        for part, own in zip(halves(op), (used[:2], used[2:]))
        for label in LOCAL_LABELS[part.name](walk, part, own)
    ],
    "backward_input": _input_grad,
    "backward_weight": lambda walk, op, used: [_weight_grad(walk, op, used)],
    "norm": lambda walk, op, used: [Rows("norm", (0,), 1)],
    "update": lambda walk, op, used: [as_rows(held(used[1]))._replace(kind=kind) for kind in ("weight", "state")],
    "tier_update": lambda walk, op, used: [
        OnTier(as_rows(content(used[1]))._replace(kind=kind), *op.args) for kind in ("weight", "state")
    ],
    "delta": lambda walk, op, used: [as_rows(held(used[1]))._replace(kind="delta")],
    "outer_update": lambda walk, op, used: [as_rows(held(used[0]))._replace(kind=kind) for kind in ("weight", "outer")],
    "merge": lambda walk, op, used: used[:1],
    "keys": lambda walk, op, used: [as_tokens(used[0])._replace(queries=())],
    "attend": lambda walk, op, used: used[:1],
    "attend_backward": _attended,
    "keys_backward": lambda walk, op, used: [walk.rows("grad", op), used[0]],
    "add": _added,
    "combine": lambda walk, op, used: [union([held(label) for label in used])],
    "shard": _shard,
    "offload": lambda walk, op, used: [OnTier(held(used[0]), op.args[0])],
    "fetch": lambda walk, op, used: [used[0].held if isinstance(used[0], OnTier) else used[0]],
    "move": lambda walk, op, used: [OnTier(content(used[0]), *op.args)],
    "given": _given,
}
"""The labels of an operation's results. Operations that are not here make no values."""


def _part(brought: Sequence[Content], place: int) -> Tokens:
    return as_tokens(cut(brought[place], place, len(brought)))


def _scattered(brought: Sequence[Content], place: int, op: Op) -> Content:
    """This rank's part of the sum; for gradients of keys, the tokens of its own queries."""
    mine = brought[place]
    if isinstance(mine, Tokens) and mine.queries:
        return mine._replace(places=mine.queries)
    return cut(mine, place, len(brought))


COLLECTIVE_LABELS: Mapping[str, Callable[[Sequence[Content], int, Op], Content]] = {
    "allreduce": lambda brought, place, op: _of_copies(brought, place),
    "allgather": lambda brought, place, op: union(brought),
    "scatterreduce": _scattered,
    "dispatch": lambda brought, place, op: _part(brought, place)._replace(batches=all_batches(brought)),
    "collect": lambda brought, place, op: as_tokens(union(brought))._replace(batches=tuple(sorted(op.batches))),
    "heads": lambda brought, place, op: as_tokens(union(brought))._replace(heads=len(brought)),
    "tokens": lambda brought, place, op: _part(brought, place)._replace(heads=1),
}
"""The label of what the rank at a position of a group gets from a collective, given the labels of all inputs."""

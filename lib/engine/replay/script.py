"""Reads from the referee's re-execution of a trace what each rank of a replay needs: the contents of all tensors, and
the order of its calls."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lib.communication.meetings import Call
from lib.judging.recomputation import RankState, Recomputation
from lib.rules.collectives import COLLECTIVES, ROOT_OF, is_last, next_member
from lib.trace.lifetimes import lifetimes
from lib.trace.ops import Op, Trace, group_of, root_of

from .contents import Content, TensorExchange, content_of
from .workload import Shapes

CHAIN = -1
"""The tag of what a broadcast or a reduce sends from one rank to the next; messages have tags from 0 on."""


@dataclass(frozen=True, slots=True)
class RankScript:
    """One rank: its operations, their order, and the content of each value by its number."""

    ops: Sequence[Op]
    script: Sequence[int]
    """The index i of each operation in turn. A call that runs on a lane appears twice: as i where it is made, and as ~i
    where it runs. All ranks can follow their scripts with blocking calls, because one order of all operations agrees
    with each script."""
    contents: Mapping[int, Content]
    exchanges: Mapping[int, TensorExchange]
    """By the number of a value that a collective makes."""
    tags: Mapping[int, Sequence[int]]
    """By sender: the tags of its messages to this rank, in the order of sending."""

    def freed_after(self) -> dict[int, list[int]]:
        """By entry of the script: the numbers of the values that are not needed after it. Values that a later-running
        call uses are needed until the call is awaited."""
        freed: dict[int, list[int]] = {}
        later = {~entry for entry in self.script if entry < 0}
        for number, _, until in lifetimes(self.ops).held:
            runs_later = until in later and number in self.ops[until].inputs
            freed.setdefault(~until if runs_later else until, []).append(number)
        return freed


class OrderedRecomputation(Recomputation):
    """The re-execution of a trace, which also notes the order in which calls are made and run."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.calls: list[list[int]] = [[] for _ in trace.ranks]
        """By rank: the operations that involve other ranks, as in a script."""
        super().__init__(trace, strict)

    def visit(self, cursor: RankState, op: Op) -> bool:
        at, visited = cursor.at, super().visit(cursor, op)
        if visited and op.name not in self.on_lanes:
            self.calls[cursor.rank].append(at)
        return visited

    def on_call(self, cursor: RankState, op: Op) -> Call:
        call = super().on_call(cursor, op)
        if self.on_lanes:
            self.calls[cursor.rank].append(cursor.at)
        return call

    def on_end(self, cursor: RankState, call: Call) -> None:
        super().on_end(cursor, call)
        if self.on_lanes:
            self.calls[cursor.rank].append(~call.at)

    def scripts(self, shapes: Shapes) -> list[RankScript]:
        """Every rank's part of a legal trace, with tensors of some shapes."""
        contents = [{number: content_of(value, shapes) for number, value in rank.values.items()} for rank in self.ranks]
        exchanges = _exchanges(self.trace, contents)
        orders = [_script(len(rank.ops), calls) for rank, calls in zip(self.ranks, self.calls)]
        tags = _tags(self.trace, orders)
        return [RankScript(*columns) for columns in zip(self.trace.ranks, orders, contents, exchanges, tags)]


def _script(count: int, calls: Sequence[int]) -> list[int]:
    """All `count` operations of a rank in turn, with the calls that run on lanes where `calls` has them."""
    if not any(entry < 0 for entry in calls):
        return list(range(count))
    script: list[int] = []
    past = 0
    for entry in calls:
        if entry >= 0:
            script += range(past, entry + 1)
            past = entry + 1
        else:
            script.append(entry)
    return [*script, *range(past, count)]


def _members(op: Op, ranks: int) -> tuple[int, ...]:
    return group_of(op) or tuple(range(ranks))


def _exchanges(trace: Trace, contents: Sequence[Mapping[int, Content]]) -> list[dict[int, TensorExchange]]:
    """For each rank its exchanges: the k-th collective of every member of a group meets the k-th of the others."""
    ranks = range(len(trace.ranks))
    meetings: dict[tuple[tuple[int, ...], int], dict[int, Op]] = defaultdict(dict)
    for rank, ops in enumerate(trace.ranks):
        counts: Counter[tuple[int, ...]] = Counter()
        for op in ops:
            if op.name in COLLECTIVES:
                group = _members(op, len(ranks))
                meetings[group, counts[group]][rank] = op
                counts[group] += 1
    exchanges: list[dict[int, TensorExchange]] = [{} for _ in ranks]
    for (group, _), calls in meetings.items():
        if calls[group[0]].name in ROOT_OF:
            continue
        for n in range(len(calls[group[0]].inputs)):
            inputs = [contents[rank][calls[rank].inputs[n]] for rank in group]
            results = [contents[rank][calls[rank].outputs[n]] for rank in group]
            for place, rank in enumerate(group):
                exchanges[rank][calls[rank].outputs[n]] = TensorExchange(group, place, inputs, results)
    return exchanges


def _tags(trace: Trace, scripts: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """By receiver and sender: the tags of their messages, in the order of sending."""
    tags: list[dict[int, list[int]]] = [{} for _ in trace.ranks]
    for sender, (ops, script) in enumerate(zip(trace.ranks, scripts)):
        later = {~entry for entry in script if entry < 0}
        for op in (ops[max(entry, ~entry)] for entry in script if entry not in later):
            root = root_of(op)
            if op.name == "pass_to":
                to, *tag = op.args
                tags[to].setdefault(sender, []).append(*(tag or (0,)))
            elif root is not None:
                members = _members(op, len(trace.ranks))
                if not is_last(op.name, sender, members, root):
                    tags[next_member(sender, members)].setdefault(sender, []).append(CHAIN)
    return tags

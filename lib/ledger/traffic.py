"""What each rank sends, by call and in any window of time, why it sends too much, and how far replicas drift apart.

Elements are counted by the ring algorithms, whatever a collective costs in a setting, so that schedules can be compared
across settings. Copies to and from a tier are not traffic: they cross no network.

This module decides what is counted and how a cause is worded. Whether a figure meets a target is decided by `goal`, and
whether causes are shown by `referee`.
"""

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from lib.ledger.algebra import counted
from lib.ledger.collectives import COLLECTIVES
from lib.ledger.costs import COPYING, elements_sent
from lib.ledger.meetings import members_of
from lib.ledger.trace import UPDATES, Op, group_of, sent_values
from lib.ledger.values import OptState, Parked, Value, Weight, WeightGrad

from .memory import layers_text, noun
from .recomputation import RankState, Recomputation, unparked

SENDING = {*COLLECTIVES, *COPYING, "pass_to"}

Span = tuple[int, int, int]
"""A start, an end, and the elements that are sent evenly in between."""


class Sent(NamedTuple):
    """Elements that a rank sends in one operation, or copies to or from a tier, and the ticks of its start and end.
    `is_between` is true for a group in several machines."""

    operation: str
    start: int
    end: int
    elements: int
    line: int
    is_between: bool


class Calls(NamedTuple):
    """The calls of one operation on one line: their number, and the elements that they send in all."""

    operation: str
    line: int
    number: int
    elements: int


class Traffic(NamedTuple):
    """Elements sent in a run by ring accounting (`lib.ledger.costs.elements_sent`), without copies to or from a tier.

    `busiest` is the most that a rank sends, `total` the sum of all ranks, `between` the most that a rank sends in
    groups of several machines, `by_rank` the calls of each rank, most elements first, `spans` when each rank sends how
    much.
    """

    busiest: int
    total: int
    between: int
    by_rank: tuple[tuple[Calls, ...], ...]
    spans: tuple[tuple[Span, ...], ...]

    @property
    def rank(self) -> int:
        """The busiest rank; of several, the first."""
        return next((rank for rank in range(len(self.by_rank)) if self.of(rank) == self.busiest), 0)

    def of(self, rank: int) -> int:
        return sum(calls.elements for calls in self.by_rank[rank])

    @property
    def by_call(self) -> tuple[Calls, ...]:
        """The calls of the busiest rank."""
        return self.by_rank[self.rank] if self.by_rank else ()


def sent_by(recomputation: Recomputation, rank: RankState) -> Iterator[Sent]:
    """What a rank sends to other ranks, or copies to and from a tier, in program order."""
    for op in rank.all(SENDING):
        between = op.name not in COPYING and recomputation.costs.crosses(_members(recomputation, rank, op))
        yield Sent(op.name, op.start, op.end, elements_of(recomputation, rank, op), op.line, between)


def elements_of(recomputation: Recomputation, rank: RankState, op: Op) -> int:
    """The elements that a rank sends or copies in one of its operations."""
    if op.name in COPYING:
        parked = rank.values[(op.outputs if op.name == "offload" else op.inputs)[0]]
        assert isinstance(parked, Parked)
        return parked.size(recomputation.costs)
    members = _members(recomputation, rank, op)
    sizes = [rank.values[number].memory(recomputation.costs) for number in sent_values(op, rank.rank, members)]
    return sum(elements_sent(op.name, size, len(members)) for size in sizes)


def _members(recomputation: Recomputation, rank: RankState, op: Op) -> Sequence[int]:
    """The ranks of a collective or a message, ascending."""
    if op.name == "pass_to":
        return sorted((rank.rank, op.args[0]))
    return members_of(recomputation.game, group_of(op))


def traffic(recomputation: Recomputation) -> Traffic:
    """The traffic of a run."""
    ranks = [
        [transfer for transfer in sent_by(recomputation, rank) if transfer.operation not in COPYING]
        for rank in recomputation.ranks
    ]
    totals = [sum(transfer.elements for transfer in sent) for sent in ranks]
    return Traffic(
        busiest=max(totals, default=0),
        total=sum(totals),
        between=max((sum(transfer.elements for transfer in sent if transfer.is_between) for sent in ranks), default=0),
        by_rank=tuple(map(_by_call, ranks)),
        spans=tuple(tuple((transfer.start, transfer.end, transfer.elements) for transfer in sent) for sent in ranks),
    )


def _by_call(sent: Sequence[Sent]) -> tuple[Calls, ...]:
    """What a rank sends by operation and line, most elements first."""
    calls: dict[tuple[str, int], list[int]] = {}
    for transfer in sent:
        calls.setdefault((transfer.operation, transfer.line), []).append(transfer.elements)
    rows = [Calls(name, line, len(elements), sum(elements)) for (name, line), elements in calls.items()]
    return tuple(sorted(rows, key=lambda row: (-row.elements, row.line, row.operation)))


def drift(ranks: Sequence[RankState]) -> int:
    """The most updates that a replica has made alone since it last equalled the others."""
    updated = (rank.values[op.outputs[0]] for rank in ranks for op in rank.all(UPDATES))
    weights = map(unparked, updated)
    copies = ((weight.step, weight.copy) for weight in weights if isinstance(weight, Weight))
    return max(
        (step - copy.since for step, copy in copies if copy and len(copy.batches) not in (0, copy.of)), default=0
    )


def staleness(ranks: Sequence[RankState]) -> int:
    """The most steps by which weights were older than the data that they computed with."""
    grads = (value for rank in ranks for value in rank.values.values() if isinstance(value, WeightGrad))
    return max((grad.step - grad.version for grad in grads if grad.version is not None), default=0)


MAX_ROWS = 10
"""The most calls in the table; the others are summed in one row."""


def traffic_lines(sent: Traffic) -> Iterator[str]:
    """A heading, and for each operation and line of the busiest rank its elements, share and number of calls; empty if
    no rank sends."""
    if not sent.busiest:
        return
    are_equal = all(sent.of(rank) == sent.busiest for rank in range(len(sent.by_rank)))
    who = "Each rank" if are_equal else f"Rank {sent.rank}, the busiest,"
    yield f"{who} sends {sent.busiest:,} elements, and all ranks {sent.total:,}:"
    shown, rest = sent.by_call[:MAX_ROWS], sent.by_call[MAX_ROWS:]
    rows = [
        (row.elements, f"{row.operation}, {counted(row.number, 'call')}{f' (line {row.line})' if row.line else ''}")
        for row in shown
    ]
    if rest:
        number = counted(sum(row.number for row in rest), "call")
        rows.append((sum(row.elements for row in rest), f"{number} on other lines"))
    width = max(len(f"{elements:,}") for elements, _ in rows)
    for elements, words in rows:
        yield f"  {elements:>{width},}  {elements / sent.busiest:4.0%}  {words}"


def most_in_window(spans: Iterable[Span], window: Fraction) -> Fraction:
    """The most elements sent within any `window` of this length. A window that begins or ends at the start or the end
    of a span has the most. What is sent in no time is in each window that touches it."""
    rates: dict[int, Fraction] = defaultdict(Fraction)
    jumps: dict[int, int] = defaultdict(int)
    for start, end, elements in spans:
        if start == end:
            jumps[start] += elements
        else:
            rate = Fraction(elements, end - start)
            rates[start] += rate
            rates[end] -= rate
    edges = sorted({*rates, *jumps})
    if not edges:
        return Fraction()
    slopes = [*accumulate(rates[edge] for edge in edges)]
    before, at_edge = [Fraction()], [Fraction(jumps[edges[0]])]
    for i in range(1, len(edges)):
        before.append(at_edge[-1] + slopes[i - 1] * (edges[i] - edges[i - 1]))
        at_edge.append(before[-1] + jumps[edges[i]])

    def sent_until(time: Fraction) -> Fraction:
        i = bisect_right(edges, time) - 1
        return at_edge[i] + slopes[i] * (time - edges[i]) if i >= 0 else Fraction()

    def sent_before(time: Fraction) -> Fraction:
        i = bisect_left(edges, time)
        return before[i] if i < len(edges) and edges[i] == time else sent_until(time)

    begins = [*map(Fraction, edges), *(edge - window for edge in edges)]
    return max(sent_until(begin + window) - sent_before(begin) for begin in begins)


# --- Why a rank sends more than necessary, in words ---

BOOKKEEPING = frozenset(("store", "delete", "await"))
"""Operations that do not read a value's numbers."""


class Cause(NamedTuple):
    """A sentence, and the elements that its calls send. With `takes_time` it also explains lost time."""

    text: str
    elements: int
    takes_time: bool = False


def traffic_causes(recomputation: Recomputation, rank: RankState) -> tuple[Cause, ...]:
    """The causes on a rank, such as the one that sends the most, most elements first."""
    readers: dict[int, list[Op]] = defaultdict(list)
    for op in rank.done:
        if op.name not in BOOKKEEPING:
            for number in op.inputs:
                readers[number].append(op)
    lines: dict[tuple[str, int], list[Op]] = defaultdict(list)
    for op in rank.all({"allreduce", "allgather", "pass_to"}):
        lines[op.name, op.line].append(op)
    causes: list[Cause] = []
    explained = {"allreduce": _reduced, "allgather": _gathered, "pass_to": _passed}
    for (name, line), ops in lines.items():
        causes += explained[name](_Line(line, ops, recomputation, rank, readers))
    return tuple(sorted(causes, key=lambda cause: -cause.elements))


class _Line(NamedTuple):
    """The calls of one operation on one line of a rank, and the operations that read each value."""

    number: int
    ops: Sequence[Op]
    recomputation: Recomputation
    rank: RankState
    readers: dict[int, list[Op]]

    @property
    def name(self) -> str:
        return f"Line {self.number}" if self.number else "A call"

    def sent(self, ops: Sequence[Op]) -> int:
        return sum(elements_of(self.recomputation, self.rank, op) for op in ops)

    def values(self, ops: Sequence[Op]) -> list[Value]:
        return [self.rank.values[number] for op in ops for number in op.inputs]


def _reduced(line: _Line) -> Iterator[Cause]:
    final = {id(weight) for weight in line.rank.final}

    def reads(op: Op) -> list[Op]:
        return [reader for number in op.outputs for reader in line.readers[number]]

    cut = [op for op in line.ops if reads(op) and all(_keeps_a_shard(line.rank, reader) for reader in reads(op))]
    if cut:
        sent = line.sent(cut)
        yield Cause(
            f"{line.name} all-reduces {_count(line.values(cut))} and keeps a shard of each: `scatterreduce` "
            f"sends half ({sent // 2:,} elements, not {sent:,}).",
            sent,
        )
    unread = [
        op for op in line.ops if not reads(op) and not any(id(line.rank.values[out]) in final for out in op.outputs)
    ]
    if unread:
        values, sent = line.values(unread), line.sent(unread)
        what = f"the {noun(values[0])}{'s' if len(values) > 1 else ''} {layers_text(values)}"
        text = f"{line.name} all-reduces {_shortened(what)}, which nobody reads: leave it out ({sent:,} elements)."
        yield Cause(text, sent, takes_time=True)


def _keeps_a_shard(rank: RankState, reader: Op) -> bool:
    """True if an operation reads at most a shard of a gradient: a cut, or the update of a sharded weight."""
    if reader.name != "update":
        return reader.name == "shard"
    grad, weight = rank.used(reader)[:2]
    return isinstance(grad, WeightGrad) and isinstance(weight, Weight) and grad.total < weight.total


def _gathered(line: _Line) -> Iterator[Cause]:
    weights = [op for op in line.ops if isinstance(line.rank.values[op.inputs[0]], Weight)]
    if not weights:
        return
    places = _still_held(line.rank, weights)
    if places:
        where = next(iter(places.values()))
        text = f"{line.name} gathers a weight that is still in `{where}`."
        yield Cause(text, line.sent([op for op in weights if op.outputs in places]))
    uses: Counter[tuple[object, ...]] = Counter()
    for op in weights:
        value = line.rank.values[op.inputs[0]]
        reader = next((op.name for number in op.outputs for op in line.readers[number]), "")
        uses[value.layer, value.step, reader] += 1  # type: ignore[attr-defined]  # weights have a step
    if not places and (times := min(uses.values())) > 1:
        yield Cause(
            f"{line.name} gathers each weight {times} times; take more microbatches together, or keep the weight.",
            line.sent(weights),
        )


def _still_held(rank: RankState, gathers: Sequence[Op]) -> dict[tuple[int, ...], str]:
    """By the outputs of a gather: the index at which the rank already has the same full weight."""
    wanted = {op.outputs: op for op in gathers}
    kept: dict[tuple[object, object], Weight] = {}
    places: dict[tuple[int, ...], str] = {}
    for op in rank.done:
        if op.name in ("store", "delete"):
            kept.pop(op.args, None)
            value = rank.values[op.inputs[0]] if op.name == "store" else None
            if isinstance(value, Weight) and len(value.shards) == value.total:
                kept[op.args] = value
        elif op.outputs in wanted:
            gathered = rank.values[op.inputs[0]]
            for (where, key), weight in kept.items():
                if (weight.layer, weight.step, weight.copy) == (gathered.layer, gathered.step, gathered.copy):  # type: ignore[attr-defined]
                    places.setdefault(op.outputs, f"{where}[{key!r}]")
    return places


def _passed(line: _Line) -> Iterator[Cause]:
    sent = [op for op in line.ops if any(isinstance(v, (Weight, WeightGrad, OptState)) for v in line.values([op]))]
    if sent and not _is_a_copy(line):
        yield Cause(
            f"{line.name} sends {_count(line.values(sent))} in messages ({line.sent(sent):,} elements). Here "
            "weights stay where they are; send activations.",
            line.sent(sent),
        )


def _is_a_copy(line: _Line) -> bool:
    """True if several ranks have the stages of this one, as in two directions, so that their gradients must meet."""
    of_ranks = [{op.layer for op in rank.all({"forward"})} for rank in line.recomputation.ranks]
    layers = {op.layer for op in line.rank.all({"forward"})}
    return of_ranks.count(layers) > 1 and len(layers) < len(set().union(*of_ranks))


def _count(values: Sequence[Value]) -> str:
    """'4 weight gradients'."""
    return counted(len(values), _shortened(noun(values[0])))


def _shortened(text: str) -> str:
    """Shortened words for a verdict, in which a weight gradient is just a gradient."""
    return text.replace("weight gradient", "gradient").replace("activation gradient", "gradient")

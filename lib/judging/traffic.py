"""Counts what each rank sends, by call and in any window of time, and how far replicas drift apart, in a trace."""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from lib.communication.meetings import members_of
from lib.game.ring import elements_sent
from lib.game.tiers import COPYING
from lib.rules.collectives import COLLECTIVES
from lib.trace.ops import UPDATES, Op, group_of, sent_values
from lib.values.algebra import counted
from lib.values.kinds import Parked, Weight, WeightGrad

from .rank_state import RankState
from .recompute import Recomputation

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
    """Elements sent in a run by ring accounting (`lib.game.costs.elements_sent`), without copies to or from a tier.

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
    weights = (weight.value if isinstance(weight, Parked) else weight for weight in updated)
    return max((_alone(weight) for weight in weights if isinstance(weight, Weight)), default=0)


def staleness(ranks: Sequence[RankState]) -> int:
    """The most steps by which weights were older than the data that they computed with."""
    grads = (value for rank in ranks for value in rank.values.values() if isinstance(value, WeightGrad))
    return max((grad.step - grad.version for grad in grads if grad.version is not None), default=0)


def _alone(weight: Weight) -> int:
    """The updates since a weight was last the same on all replicas; 0 if it has been trained with every batch."""
    copy = weight.copy
    return 0 if copy is None or len(copy.batches) in (0, copy.of) else weight.step - copy.since


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
        (calls.elements, f"{calls.operation}, {counted(calls.number, 'call')}{_line(calls.line)}") for calls in shown
    ]
    if rest:
        rows.append(
            (
                sum(calls.elements for calls in rest),
                f"{counted(sum(calls.number for calls in rest), 'call')} on other lines",
            )
        )
    width = max(len(f"{elements:,}") for elements, _ in rows)
    for elements, words in rows:
        yield f"  {elements:>{width},}  {elements / sent.busiest:4.0%}  {words}"


def _line(line: int) -> str:
    return f" (line {line})" if line else ""


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

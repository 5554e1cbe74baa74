"""The rows of a picture: one for each rank; of more than 16 ranks, one for all ranks that do the same, with a count.

Two ranks share a row if, one operation after the other, the following is equal:

- the operation, its layer, its training step, whether it is computed again, when it starts and ends, in which stream,
  when its call was made and awaited;
- its microbatches, except for their numbers: each rank's are numbered in the order in which they occur on it;
- of a message: its tag, when it was sent and read, and the row of the rank at the other end;
- of a collective: how many of its members are in each row;
- of a wait: when it is, and the operation that ended it, with the row of its rank;

and if their memory, by kind, is equal at all times. So an arrow or a line between two rows stands for one at each of
their ranks. The rows are found by refinement: beginning with ranks whose own operations are equal, a row is split as
long as its ranks differ in the rows of those that they communicate with.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lib import COLLECTIVES, group_of
from lib.values.algebra import named

from .marks import LaneMarks, Link, Mark, Tie

MAX_ROWS_APART = 16
"""In a picture of at most so many ranks, each has its own row."""

Waits = Sequence[Mapping[int, tuple[int, int]]]
"""By rank and place of an event: rank and place of the event that it waited for."""


class MarkRow(NamedTuple):
    """One row: its ranks, which all do what the `lane` of the first one shows."""

    lane: LaneMarks
    ranks: tuple[int, ...]

    @property
    def label(self) -> str:
        """'rank 0', 'rank 0 x64', 'rank 3, 2x slow'."""
        slow = f", {self.lane.slow}x slow" if self.lane.slow else ""
        return f"rank {self.lane.rank}{f' x{len(self.ranks)}' if len(self.ranks) > 1 else ''}{slow}"

    @property
    def all(self) -> str:
        """'rank 0', 'ranks 0-63': names what is true of all ranks in the row."""
        return named("rank", self.ranks)

    @property
    def first(self) -> str:
        """'rank 0', 'rank 0 (like ranks 1-63)': names what differs in the numbers of peers or microbatches."""
        like = f" (like {named('rank', self.ranks[1:])})" if len(self.ranks) > 1 else ""
        return f"rank {self.lane.rank}{like}"


@dataclass(frozen=True)
class MarkRows:
    """The rows of a picture, from top to bottom, in the order of their first ranks."""

    every: tuple[MarkRow, ...]
    places: tuple[int, ...]
    """By rank: the number of its row."""
    _all_lanes: Sequence[LaneMarks]

    @property
    def are_shared(self) -> bool:
        """True if a row stands for several ranks."""
        return len(self.every) < len(self.places)

    @property
    def lanes(self) -> tuple[LaneMarks, ...]:
        """The lanes that are drawn."""
        return tuple(row.lane for row in self.every)

    @property
    def marks(self) -> Iterator[Mark]:
        """The operations that are drawn."""
        return (mark for row in self.every for mark in row.lane.marks)

    def of(self, rank: int) -> MarkRow:
        """The row of a rank."""
        return self.every[self.places[rank]]

    def is_above(self, partner: int | None, rank: int) -> bool:
        """True if the `partner` of a rank, if it has one, is in a row above it."""
        if partner is None:
            return False
        exists = 0 <= partner < len(self.places)  # a wrong run may name any rank
        return (self.places[partner] if exists else partner) < self.places[rank]

    def shown(self, mark: Mark) -> Mark:
        """The drawn operation for this one: that of the first rank in its row."""
        own, lane = self._all_lanes[mark.rank], self.of(mark.rank).lane
        return mark if own is lane else lane.marks[mark.number - own.marks[0].number]

    def links(self, links: Iterable[Link]) -> tuple[Link, ...]:
        """The drawn messages: messages of a drawn rank to another row."""
        return tuple(
            link
            for link in links
            if self.of(link.source).lane.rank == link.source
            and (len(self.of(link.source).ranks) == 1 or self.places[link.source] != self.places[link.target])
        )

    def ties(self, ties: Iterable[Tie]) -> tuple[Tie, ...]:
        """The drawn collectives, each once, with drawn operations as members, from top to bottom."""
        found: dict[tuple[int, ...], Tie] = {}
        for tie in ties:
            shown = {mark.number: mark for mark in map(self.shown, tie.members)}
            numbers = tuple(sorted(shown))
            found.setdefault(numbers, tie._replace(members=tuple(shown[number] for number in numbers)))
        return tuple(found.values())


def rows_of(
    lanes: Sequence[LaneMarks], links: Sequence[Link], ties: Sequence[Tie], waits: Waits, shared: bool
) -> MarkRows:
    """The rows of a run; without `shared`, and of at most 16 ranks, one for each."""
    many = shared and len(lanes) > MAX_ROWS_APART
    kinds = kinds_of(lanes, links, ties, waits) if many else range(len(lanes))
    members: dict[int, list[int]] = {}
    for rank, kind in enumerate(kinds):
        members.setdefault(kind, []).append(rank)
    numbers = {kind: number for number, kind in enumerate(members)}
    rows = tuple(MarkRow(lanes[ranks[0]], tuple(ranks)) for ranks in members.values())
    return MarkRows(rows, tuple(numbers[kind] for kind in kinds), lanes)


def kinds_of(lanes: Sequence[LaneMarks], links: Sequence[Link], ties: Sequence[Tie], waits: Waits) -> list[int]:
    """By rank: a number, which is the same for ranks that share a row."""
    other_end = {link.send.number: link.received for link in links}
    other_end |= {link.receive.number: link.sent for link in links if link.receive is not None}
    tie_at = {mark.number: number for number, tie in enumerate(ties) for mark in tie.members}
    at = {(mark.rank, mark.place): mark for lane in lanes for mark in lane.marks}
    causes = [{place: at[cause] for place, cause in waits[lane.rank].items()} for lane in lanes]
    own = [own_part(lane, other_end, causes[lane.rank]) for lane in lanes]
    peers = [peers_of(lane, causes[lane.rank], len(lanes)) for lane in lanes]
    joined = [[tie_at.get(mark.number) for mark in lane.marks] for lane in lanes]
    kinds, before = numbered(own), 0
    while before < (before := len(set(kinds))) < len(lanes):
        meetings = [*numbered(tuple(sorted(kinds[mark.rank] for mark in tie.members)) for tie in ties), None]
        kinds = numbered(
            (kind, tuple(kinds[peer] for peer in near), tuple(meetings[-1 if tie is None else tie] for tie in met))
            for kind, near, met in zip(kinds, peers, joined)
        )
    return kinds


def numbered(things: Iterable[Hashable]) -> list[int]:
    """For each thing a number; equal things have the same."""
    found: dict[Hashable, int] = {}
    return [found.setdefault(thing, len(found)) for thing in things]


def own_part(lane: LaneMarks, other_end: Mapping[int, float | None], causes: Mapping[int, Mark]) -> Hashable:
    """The properties of a rank that can be compared before it is known which ranks are equal."""
    batches: dict[int, int] = {}
    first = lane.marks[0].number if lane.marks else 0
    events = tuple(own_event(mark, batches, other_end, causes.get(mark.place)) for mark in lane.marks)
    gaps = (
        (gap.start, gap.end, *(mark and mark.number - first for mark in (gap.before, gap.awaited))) for gap in lane.gaps
    )
    return events, tuple(gaps), lane.memory


def own_event(
    mark: Mark, batches: dict[int, int], other_end: Mapping[int, float | None], cause: Mark | None
) -> Hashable:
    """An operation without numbers of ranks; its microbatches are numbered in order of occurrence."""
    op = mark.op
    seen = frozenset(batches.setdefault(batch, len(batches)) for batch in sorted(op.batches))
    group = group_of(op) if op.name in COLLECTIVES else None
    when = (mark.start, mark.end, mark.called, mark.awaited, other_end.get(mark.number))
    why = cause and (cause.op.name, cause.op.layer, cause.start)
    facts = (mark.stream, mark.step, mark.again, mark.memory, mark.tag, group and len(group))
    return op.name, op.layer, seen, when, facts, why


def peers_of(lane: LaneMarks, causes: Mapping[int, Mark], ranks: int) -> list[int]:
    """The ranks at the other end of messages and of waits, in order."""
    partners = (mark.partner for mark in lane.marks)
    found = [partner for partner in partners if partner is not None and 0 <= partner < ranks]
    return found + [causes[mark.place].rank for mark in lane.marks if mark.place in causes]

"""An order replayed with any times, each slot as early as possible; and one clock for the ranks that ran it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from lib.errors import RuleError
from lib.schedules import Timetable
from lib.schedules.cells import Message, in_order

from .sources import Span

Place = tuple[int, int]
"""The rank and the index of a slot."""


class Arrival(NamedTuple):
    """What a slot receives, and the slot that makes it."""

    made: Place
    message: Message


class Order:
    """A timetable with the messages that each slot receives from other ranks."""

    def __init__(self, table: Timetable) -> None:
        self.table = table
        self.places = {
            cell: (rank, at) for rank, row in enumerate(table.rows) for at, slot in enumerate(row) for cell in slot
        }
        self.arrivals: list[list[list[Arrival]]] = [
            [[Arrival(self.places[message.made], message) for message in table.needs.received(slot)] for slot in row]
            for row in table.rows
        ]
        self.sequence = [*in_order(table.rows, table.needs)]
        """All slots, each after its inputs."""


def replayed(
    order: Order,
    length: Callable[[int, int], float],
    message: float = 0.0,
    host: Mapping[Place, float] = MappingProxyType({}),
) -> list[list[tuple[float, float]]]:
    """The start and the end of each slot, by rank. A slot starts `host` after its rank is free and its inputs have
    arrived. A `message` takes the same time between any two ranks, and no rank's time."""
    times: list[list[tuple[float, float]]] = [[] for _ in order.table.rows]
    for rank, at in order.sequence:
        free = times[rank][-1][1] if at else 0.0
        ready = max((times[source][place][1] + message for (source, place), _ in order.arrivals[rank][at]), default=0.0)
        start = max(free, ready) + host.get((rank, at), 0.0)
        times[rank].append((start, start + length(rank, at)))
    return times


def makespan(times: Sequence[Sequence[tuple[float, float]]]) -> float:
    return max(row[-1][1] for row in times)


KEPT = 0.05
"""Clocks that contradict each other by at most so many ms are not changed."""


@dataclass(frozen=True)
class Clocks:
    """For each rank the offset to add to its times, its uncertainty, in ms, and oddities.

    Nothing is used before it is made: a message from rank a to rank b implies that the offset of b is at least the
    offset of a, plus the end of the cell that made it, minus the start of the cell that uses it. Chains of messages
    imply the same for any two ranks. Each rank takes the middle of its range, the first rank being fixed, so that every
    message stays possible.
    """

    offsets: tuple[float, ...]
    doubt: float = 0.0
    note: str = ""

    @property
    def are_kept(self) -> bool:
        return not any(self.offsets)


def clocks_of(order: Order, spans: Sequence[Sequence[Span]], hosts: Sequence[str], ranks: Sequence[int]) -> Clocks:
    """The offsets of a step's ranks."""
    p = len(spans)
    least = [[-inf] * p for _ in range(p)]
    cells: dict[tuple[int, int], str] = {}
    for rank, row in enumerate(order.arrivals):
        for at, arrivals in enumerate(row):
            for (source, place), message in arrivals:
                gap = spans[source][place].end - spans[rank][at].start
                if gap > least[source][rank]:
                    least[source][rank] = gap
                    cells[source, rank] = (
                        f"{message.used} on rank {ranks[rank]} starts before rank {ranks[source]} ends {message.made}"
                    )
    most = max((gap for row in least for gap in row), default=-inf)
    if most <= KEPT:
        return Clocks((0.0,) * p)
    note = ""
    worst = max(cells, key=lambda pair: least[pair[0]][pair[1]])
    if hosts[0] and len(set(hosts)) == 1:
        note = f"{cells[worst]}, by {most:.2f} ms, and both ran on {hosts[0]}: the reading or its clocks are in error"
    for a, b in cells:
        if (missed := least[a][b] + least[b][a]) > KEPT:
            raise RuleError(
                f"no clocks fit: {cells[a, b]}, and {cells[b, a]}, with any offset by {missed:.2f} ms together; a "
                "clock drifts within the step, so profile again, or fewer microbatches"
            )
    for via in range(p):
        for a in range(p):
            if least[a][via] > -inf:
                for b in range(p):
                    least[a][b] = max(least[a][b], least[a][via] + least[via][b])
    if (missed := max(least[rank][rank] for rank in range(p))) > KEPT:
        raise RuleError(
            f"no clocks fit: around a circle of messages they miss each other by {missed:.2f} ms; a clock drifts"
        )
    offsets = tuple((least[0][rank] - least[rank][0]) / 2 if rank else 0.0 for rank in range(p))
    doubt = max(-(least[a][b] + least[b][a]) / 2 for a, b in cells)
    return Clocks(offsets, max(doubt, 0.0), note)

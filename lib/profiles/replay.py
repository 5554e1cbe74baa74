"""An order played again with any times: each slot as early as it can be, which is a longest path."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from lib.schedules import Timetable
from lib.schedules.cells import Message

Place = tuple[int, int]
"""The rank and the index of a slot."""


class Arrival(NamedTuple):
    """What a slot receives, and the slot that makes it."""

    made: Place
    message: Message


class Order:
    """A timetable with what each slot receives from other ranks."""

    def __init__(self, table: Timetable) -> None:
        self.table = table
        self.places = {
            cell: (rank, at) for rank, row in enumerate(table.rows) for at, slot in enumerate(row) for cell in slot
        }
        self.arrivals: list[list[list[Arrival]]] = [
            [[Arrival(self.places[one.made], one) for one in table.needs.received(slot)] for slot in row]
            for row in table.rows
        ]

    @cached_property
    def sequence(self) -> list[Place]:
        """All slots, each after what it needs."""
        done = [0] * self.table.ranks
        found: list[Place] = []
        count = sum(map(len, self.table.rows))
        while len(found) < count:
            for rank, row in enumerate(self.table.rows):
                while done[rank] < len(row) and all(
                    at < done[source] for (source, at), _ in self.arrivals[rank][done[rank]]
                ):
                    found.append((rank, done[rank]))
                    done[rank] += 1
        return found


def no_time(rank: int, at: int) -> float:
    return 0.0


def replayed(
    order: Order,
    length: Callable[[int, int], float],
    message: float = 0.0,
    host: Callable[[int, int], float] = no_time,
) -> list[list[tuple[float, float]]]:
    """By rank, the start and the end of each slot: when its rank is free and its inputs have arrived, and `host` later.
    A `message` takes as long between any two ranks, and no rank's time."""
    found: list[list[tuple[float, float]]] = [[] for _ in order.table.rows]
    for rank, at in order.sequence:
        free = found[rank][-1][1] if at else 0.0
        ready = max((found[source][place][1] + message for (source, place), _ in order.arrivals[rank][at]), default=0.0)
        start = max(free, ready) + host(rank, at)
        found[rank].append((start, start + length(rank, at)))
    return found


def makespan(times: Sequence[Sequence[tuple[float, float]]]) -> float:
    return max(row[-1][1] for row in times)

"""What is read from one file: when a rank computed which cells, by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lib.schedules.cells import Slot

MOST_TEXT = 60
"""Characters of a name from a file that a message repeats."""


class Span(NamedTuple):
    """When a rank computed the cells of a slot, in ms. It was `posted` by the program, which may run ahead of a GPU;
    `busy` is the part of the time in which kernels ran. A stage below zero, -1 - c, is the rank's chunk c; a
    microbatch below zero is counted in order."""

    cells: Slot
    posted: float
    start: float
    end: float
    busy: float

    @property
    def length(self) -> float:
        return self.end - self.start

    @property
    def kind(self) -> tuple[tuple[int, str], ...]:
        """The stage and the operation of each cell."""
        return tuple((cell.stage, cell.op) for cell in self.cells)

    def moved(self, by: float) -> Span:
        return self._replace(posted=self.posted + by, start=self.start + by, end=self.end + by)


class JoinedCall(NamedTuple):
    """A collective on a rank, in ms: which, the name of its group if the file has it, when the rank joined and when it
    ended."""

    name: str
    group: str
    start: float
    end: float


@dataclass(frozen=True)
class RankStep:
    """One step of a rank, in ms of its own clock."""

    start: float
    end: float
    spans: tuple[Span, ...] = ()
    calls: tuple[JoinedCall, ...] = ()
    computing: tuple[tuple[float, float], ...] = ()
    """When anything but communication ran, ascending and disjoint; only where no cells are named."""


@dataclass(frozen=True)
class RankProfile:
    """One file of a rank. `base` is the zero of its times, in ns since 1970."""

    file: str
    rank: int
    world: int | None
    steps: Mapping[int, RankStep]
    kind: str
    host: str = ""
    base: int = 0
    groups: Sequence[tuple[int, ...]] = ()
    """Process groups of pipelines, if the file names them."""
    notes: tuple[str, ...] = field(default=())


def clipped(text: str) -> str:
    """A name from a file in one short line."""
    line = " ".join(text.split())
    return line if len(line) <= MOST_TEXT else f"{line[: MOST_TEXT - 3]}..."


def union(intervals: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Intervals, ascending, without overlaps."""
    found: list[tuple[float, float]] = []
    for start, end in sorted(intervals):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


def without(
    intervals: Sequence[tuple[float, float]], holes: Sequence[tuple[float, float]]
) -> list[tuple[float, float]]:
    """Disjoint ascending intervals less other ones."""
    found: list[tuple[float, float]] = []
    at = 0
    for start, end in intervals:
        while at < len(holes) and holes[at][1] <= start:
            at += 1
        place = at
        while place < len(holes) and holes[place][0] < end:
            if holes[place][0] > start:
                found.append((start, holes[place][0]))
            start = max(start, holes[place][1])
            place += 1
        if start < end:
            found.append((start, end))
    return found

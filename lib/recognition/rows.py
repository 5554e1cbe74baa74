"""The order in which the ranks of one pipeline compute: a row of cells for each rank, with stages and microbatches
numbered as textbooks do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple, Self

from .computed import Grid, Part, RankWork

if TYPE_CHECKING:
    from lib.schedules import Timetable


class Cell(NamedTuple):
    """A microbatch in a stage: `half` is F (forward), I or W (the halves of backward)."""

    stage: int
    half: str
    batch: int


class Row(NamedTuple):
    """What a rank computes in one step, with the time of each cell, in ticks."""

    rank: int
    step: int
    cells: Sequence[Cell]
    starts: Sequence[int]


class Placement(NamedTuple):
    """Which rank has which layers. `kind` is 'contiguous' (a stage on each of `p` ranks), 'looped' (`v` stages, dealt
    out in turn), 'V' (two stages, dealt out there and back) or 'other'."""

    kind: str
    p: int
    v: int
    stage_of: Sequence[int]
    """By layer."""


def placement_of(grid: Grid) -> Placement:
    """The stages that the layers make, and how they are dealt out to the ranks."""
    p = len(grid.stages)
    where = {layer: place for place, layers in enumerate(grid.stages) for layer in layers}
    runs = [(place, len(list(layers))) for place, layers in groupby(where[layer] for layer in sorted(where))]
    turn = [place for place, _ in runs]
    kind, v = "other", 0
    if turn == list(range(p)) * (len(turn) // p):
        v = len(turn) // p
        kind = "looped" if v > 1 else "contiguous"
    elif turn == [*range(p), *reversed(range(p - 1))] and runs[p - 1][1] > 1:
        kind, v = "V", 2
        half = runs[p - 1][1] // 2
        runs[p - 1 : p] = [(p - 1, runs[p - 1][1] - half), (p - 1, half)]
    stages = [stage for stage, (_, layers) in enumerate(runs) for _ in range(layers)]
    return Placement(kind, p, v, stages)


class Pipeline:
    """One replica of a pipeline, and its `rows`. It is not `regular` if it does what no textbook does: a rank begins a
    step within another, has its own microbatches, or computes one of them amid a stage of another."""

    def __init__(self, grid: Grid, replica: int, placement: Placement) -> None:
        self.placement = placement
        self.regular = True
        self.rows: list[Row] = []
        """By step, and in it by the place of the rank's first stage; ranks that share a stage follow each other."""
        self.places: list[int] = []
        """For each row the place of its rank."""
        ranks = [(place, work) for place in range(placement.p) for work in grid.of(place, replica)]
        numbers = self._numbers(ranks[0][1])
        self.batches = max((number for _, number in numbers.values()), default=-1) + 1
        for place, work in ranks:
            self._read(place, work, numbers)

    @classmethod
    def of_table(cls, table: Timetable) -> Self:
        """The pipeline that a timetable is, with times that only count cells."""
        p, stages = table.ranks, [table.stages_of(rank) for rank in range(table.ranks)]
        v = len(stages[0])
        kinds = {
            "contiguous": [[r] for r in range(p)],
            "V": [[r, 2 * p - 1 - r] for r in range(p)],
            "looped": [[*range(r, p * v, p)] for r in range(p)],
        }
        fits = (kind for kind, dealt in kinds.items() if dealt == stages)
        made = cls.__new__(cls)
        made.placement = Placement(next(fits, "other"), p, v, range(table.stages))
        made.regular, made.batches, made.places = True, table.batches, [*range(p)]
        made.rows = []
        for rank, row in enumerate(table.rows):
            cells = [Cell(s, half, b) for slot in row for s, op, b in slot for half in ("IW" if op == "B" else op)]
            made.rows.append(Row(rank, 0, cells, range(len(cells))))
        return made

    def _numbers(self, first: RankWork) -> dict[tuple[int, frozenset[int]], tuple[int, int]]:
        """By step and batches: the step, and the number of the microbatch, in the order of the first stage."""
        numbers: dict[tuple[int, frozenset[int]], tuple[int, int]] = {}
        for part in first.parts:
            if part.half == "F" and part.layer == 0 and (part.step, part.batches) not in numbers:
                count = sum(step == part.step for step, _ in numbers)
                numbers[part.step, part.batches] = part.step, count
        return numbers

    def _read(self, place: int, work: RankWork, numbers: dict[tuple[int, frozenset[int]], tuple[int, int]]) -> None:
        steps = [part.step for part in work.parts]
        if steps != sorted(steps):
            self.regular = False
            return
        for step, parts in groupby(work.parts, key=lambda part: part.step):
            cells = list(self._cells(list(parts), work, numbers))
            self.rows.append(Row(work.rank, step, [cell for cell, _ in cells], [start for _, start in cells]))
            self.places.append(place)

    def _cells(
        self, parts: Sequence[Part], work: RankWork, numbers: dict[tuple[int, frozenset[int]], tuple[int, int]]
    ) -> Iterator[tuple[Cell, int]]:
        """The cells of a rank: each is there when the last of its layers has been computed."""
        of_cell: dict[Cell, list[int]] = {}
        cells = []
        for part in parts:
            if (part.step, part.batches) not in numbers:
                self.regular = False
                return
            cells.append(Cell(self.placement.stage_of[part.layer], part.half, numbers[part.step, part.batches][1]))
        for i, cell in enumerate(cells):
            of_cell.setdefault(cell, []).append(i)
        for i, cell in enumerate(cells):
            first, last = of_cell[cell][0], of_cell[cell][-1]
            if i == last:
                between = {(other.stage, other.batch) for other in cells[first:last]}
                self.regular &= between <= {(cell.stage, cell.batch)}
                yield cell, parts[first].start

"""The order in which the ranks of one pipeline compute: a row of cells for each rank, with stages and microbatches
numbered as textbooks do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
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


def in_halves(row: Sequence[Sequence[tuple[int, str, int]]]) -> list[Cell]:
    """The cells of some slots, with each backward split into its halves."""
    return [Cell(s, half, b) for slot in row for s, op, b in slot for half in ("IW" if op == "B" else op)]


class Row(NamedTuple):
    """What a rank computes in one step, with the time of each cell, in ticks."""

    rank: int
    step: int
    cells: Sequence[Cell]
    starts: Sequence[int]


class Placement(NamedTuple):
    """Which rank has which layers. `kind` is 'contiguous' (a stage on each of `p` ranks), 'looped' (`v` stages on each,
    dealt in turn), 'V' (two stages on each, dealt forth and back), 'waves' (that several times), 'two ways' (a stage on
    two ranks, for microbatches in opposite directions), or 'other'. A contiguous pipeline whose sequences are split
    into `v` shares is 'shares', and one that starts a step during the previous one is 'unflushed'."""

    kind: str
    p: int
    v: int
    stage_of: Sequence[int]
    """The stage of each layer."""


def placement_of(grid: Grid) -> Placement:
    """The stages that the layers form, and how they are placed on the ranks."""
    p = len(grid.stages)
    where = {layer: place for place, layers in enumerate(grid.stages) for layer in layers}
    runs = [(place, len(list(layers))) for place, layers in groupby(where[layer] for layer in sorted(where))]
    folded = [
        run
        for i, (place, n) in enumerate(runs)
        for run in _turn(place, n, 0 < i < len(runs) - 1 and place in (0, p - 1))
    ]
    kind, v = _dealt([place for place, _ in folded], p)
    if kind not in FOLDED:
        folded = runs
        kind, v = _dealt([place for place, _ in runs], p)
    return Placement(kind, p, v, _stages([layers for _, layers in folded]))


FOLDED = ("V", "waves")
"""Placements in which the direction turns on the first and the last rank, where two stages follow each other."""


def _turn(place: int, layers: int, turns: bool) -> list[tuple[int, int]]:
    """The layers of a rank as two stages, if the direction turns there and the layers suffice."""
    half = layers // 2 if turns else 0
    return [(place, layers - half), (place, half)] if half else [(place, layers)]


def _dealt(turn: Sequence[int], p: int) -> tuple[str, int]:
    """The kind of placement, from the positions of the stages' ranks; and the number of stages on each rank."""
    v = len(turn) // p
    if turn == list(range(p)) * v:
        return "looped" if v > 1 else "contiguous", v
    if turn == [*range(p), *reversed(range(p))] * (v // 2):
        return "V" if v == 2 else "waves", v
    return "other", v


def _stages(runs: Sequence[int]) -> list[int]:
    """The stage of each layer, from the layers of each stage."""
    return [stage for stage, layers in enumerate(runs) for _ in range(layers)]


Microbatch = tuple[int, frozenset[int]]
"""A step, and microbatches that are computed together."""


class Ways(NamedTuple):
    """The ranks in two directions, each with its position and its layers' stages."""

    placement: Placement
    ranks: Sequence[RankWork]
    """By position in the first direction."""
    up: frozenset[Microbatch]
    """The microbatches in the opposite direction."""


def two_ways(ranks: Sequence[RankWork]) -> list[Ways] | None:
    """How microbatches travel in two opposite directions in each replica; None if they do not. Each rank of a replica
    computes all of its microbatches."""
    replicas: dict[frozenset[Microbatch], list[RankWork]] = {}
    for work in ranks:
        replicas.setdefault(frozenset((part.step, part.batches) for part in work.parts), []).append(work)
    ways = [_two_ways(replica) for replica in replicas.values()]
    placements = {(way.placement.p, tuple(way.placement.stage_of)) for way in ways if way is not None}
    return [way for way in ways if way is not None] if None not in ways and len(placements) == 1 else None


def _two_ways(ranks: Sequence[RankWork]) -> Ways | None:
    routes: dict[Microbatch, dict[int, int]] = {}
    for work in ranks:
        for part in work.parts:
            if part.half == "F":
                routes.setdefault((part.step, part.batches), {})[part.layer] = work.rank
    ways = sorted({tuple(route[layer] for layer in sorted(route)) for route in routes.values()})
    if len(ways) != 2:
        return None
    down, up = ([(rank, len(list(layers))) for rank, layers in groupby(way)] for way in ways)
    order = [rank for rank, _ in down]
    depths = [layers for _, layers in down]
    if [rank for rank, _ in up] != order[::-1] or [layers for _, layers in up] != depths:
        return None
    if len({*order}) != len(order) or {*order} != {work.rank for work in ranks}:
        return None
    back = frozenset(key for key, route in routes.items() if tuple(route[layer] for layer in sorted(route)) == ways[1])
    by_rank = {work.rank: work for work in ranks}
    placement = Placement("two ways", len(order), 2, _stages(depths))
    return Ways(placement, [by_rank[rank] for rank in order], back)


class Pipeline:
    """One replica of a pipeline, and its `rows`. It is not `regular` if it does what no textbook does: a rank begins a
    step within another, has its own microbatches, or computes one of them within another stage."""

    def __init__(self, ranks: Sequence[tuple[int, RankWork]], placement: Placement, up: Set[Microbatch] = frozenset()):
        """The ranks with their positions, first to last; `up` are the microbatches that begin on the last rank."""
        first, last = ranks[0][1], ranks[-1][1]
        self.placement = placement
        self.regular = True
        self.rows: list[Row] = []
        """By step, and within a step by the position of the rank's first stage; ranks that share a stage are
        adjacent."""
        self.places: list[int] = []
        """For each row, the position of its rank."""
        self._flushes = placement.kind != "unflushed"
        numbers: dict[Microbatch, int] = {}
        for work, begins in ((first, lambda key: key not in up), (last, lambda key: key in up)):
            self._number(work, begins, numbers)
        self.batches = max(numbers.values(), default=-1) + 1
        for place, work in ranks:
            self._read(place, work, numbers)

    @classmethod
    def of_table(cls, table: Timetable) -> Self:
        """The pipeline of a timetable, with times that only count cells."""
        p, ranks_of = table.ranks, table.ranks_of
        both = [tuple(sorted({stage, p - 1 - stage})) for stage in range(table.stages)]
        turn = [ranks_of[stage][0] for stage in range(table.stages)]
        kind, v = ("two ways", 2) if table.copies > 1 and [*ranks_of.values()] == both else _dealt(turn, p)
        pipeline = cls.__new__(cls)
        pipeline.placement = Placement(kind, p, v, range(table.stages))
        pipeline.regular, pipeline.batches, pipeline.places = True, table.batches, [*range(p)]
        pipeline.rows = []
        for rank, row in enumerate(table.rows):
            cells = in_halves(row)
            pipeline.rows.append(Row(rank, 0, cells, range(len(cells))))
        return pipeline

    def _number(self, first: RankWork, begins: Callable[[Microbatch], bool], numbers: dict[Microbatch, int]) -> None:
        """Numbers the microbatches of each step in the order of a first stage; or of all steps if none ends."""
        for part in first.parts:
            key = part.step, part.batches
            if part.half == "F" and part.layer == 0 and key not in numbers and begins(key):
                numbers[key] = sum(step == part.step or not self._flushes for step, _ in numbers)

    def _read(self, place: int, work: RankWork, numbers: Mapping[Microbatch, int]) -> None:
        steps = [part.step if self._flushes else 0 for part in work.parts]
        if steps != sorted(steps):
            self.regular = False
            return
        for step, parts in groupby(zip(steps, work.parts), key=lambda pair: pair[0]):
            cells = list(self._cells([part for _, part in parts], numbers))
            self.rows.append(Row(work.rank, step, [cell for cell, _ in cells], [start for _, start in cells]))
            self.places.append(place)

    def _cells(self, parts: Sequence[Part], numbers: Mapping[Microbatch, int]) -> Iterator[tuple[Cell, int]]:
        """The cells of a rank. Each exists when the last of its layers has been computed."""
        of_cell: dict[Cell, list[int]] = {}
        cells = []
        for part in parts:
            if (part.step, part.batches) not in numbers:
                self.regular = False
                return
            cells.append(Cell(self.placement.stage_of[part.layer], part.half, numbers[part.step, part.batches]))
        for i, cell in enumerate(cells):
            of_cell.setdefault(cell, []).append(i)
        for i, cell in enumerate(cells):
            first, last = of_cell[cell][0], of_cell[cell][-1]
            if i == last:
                between = {(other.stage, other.batch) for other in cells[first:last]}
                self.regular &= between <= {(cell.stage, cell.batch)}
                yield cell, parts[first].start

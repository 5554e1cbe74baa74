"""A timetable in the making: the cells placed so far, where others may go, and which can already be run."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from lib import Model, RuleError

from .cells import Cell, Dependencies, DryRun, Tagging, in_order, untagged
from .timetable import Timetable
from .timetable_rank import TimetableRank
from .words import SAYS

Links = Mapping[Cell, Sequence[Cell]]


@dataclass(frozen=True)
class Draft:
    """Some cells of a training step in rows, one for each rank. Each forward has its B, or its I and W if `halves`.

    Raises:
        RuleError: a cell occurs twice, or does not belong to the step.
    """

    rows: tuple[tuple[Cell, ...], ...]
    stages: int
    batches: int
    halves: bool = False

    def __post_init__(self) -> None:
        seen = set[Cell]()
        for cell in (cell for row in self.rows for cell in row):
            if cell not in self.wanted:
                raise RuleError(
                    f"{cell} is not a cell of a step with {self.stages} stages and {self.batches} microbatches"
                )
            if cell in seen:
                raise RuleError(f"{cell} occurs twice")
            seen.add(cell)

    @cached_property
    def wanted(self) -> Mapping[Cell, None]:
        """All cells of the step, stage by stage."""
        ops = "FIW" if self.halves else "FB"
        return dict.fromkeys(Cell(s, op, b) for s in range(self.stages) for op in ops for b in range(self.batches))

    @cached_property
    def rank_of(self) -> Mapping[Cell, int]:
        """The placed cells with their ranks."""
        return {cell: rank for rank, row in enumerate(self.rows) for cell in row}

    @property
    def missing(self) -> list[Cell]:
        return [cell for cell in self.wanted if cell not in self.rank_of]

    def without(self, cell: Cell) -> Draft:
        return replace(self, rows=tuple(tuple(other for other in row if other != cell) for row in self.rows))

    def put(self, cell: Cell, rank: int, at: int) -> Draft:
        """The draft with a cell moved to index `at` of a rank's row, counted without the cell.

        Raises:
            RuleError: it cannot be there; the text says why.
        """
        bare = self.without(cell)
        if why := bare.refusals(cell)[rank][at]:
            raise RuleError(why)
        row = bare.rows[rank]
        return replace(self, rows=(*bare.rows[:rank], (*row[:at], cell, *row[at:]), *bare.rows[rank + 1 :]))

    def refusals(self, cell: Cell) -> list[list[str]]:
        """For each rank and each index in its row, up to its end, why an unplaced cell cannot be there; empty where it
        can."""
        needs = self._needs([*self.rank_of, cell])
        earlier, later = reached(cell, needs), reached(cell, inverse(needs))
        home = next((rank for placed, rank in self.rank_of.items() if placed.stage == cell.stage), None)
        return [
            [f"stage {cell.stage} is on rank {home}: put {cell} there"] * (len(row) + 1)
            if home not in (None, rank)
            else [_refusal(cell, row, at, earlier, later) for at in range(len(row) + 1)]
            for rank, row in enumerate(self.rows)
        ]

    def starts(self, durations: Mapping[str, int]) -> dict[Cell, int]:
        """The earliest start of each placed cell, by the duration of each operation; messages take no time.

        Raises:
            RuleError: cells wait for each other.
        """
        needs = self._needs(self.rank_of)
        starts: dict[Cell, int] = {}
        left = dict.fromkeys(self.rank_of)
        while left:
            ready = [cell for cell in left if all(needed in starts for needed in needs[cell])]
            if not ready:
                raise RuleError(f"{next(iter(left))} and others wait for each other; move one of them")
            for cell in ready:
                del left[cell]
                starts[cell] = max((starts[needed] + durations[needed.op] for needed in needs[cell]), default=0)
        return starts

    def computable(self) -> list[list[Cell]]:
        """The beginning of each row, up to the first cell that waits for an unplaced one."""
        slots = [[(cell,) for cell in row] for row in self.rows]
        count = Counter(rank for rank, _ in in_order(slots, self.step))
        return [[*row[: count[rank]]] for rank, row in enumerate(self.rows)]

    def ready(self) -> Iterator[tuple[Cell, int]]:
        """For each stage and operation, the next missing cell whose inputs are placed, with its rank: the rank of the
        stage, or the rank with the stage's number, counted in a circle."""
        first: dict[tuple[int, str], Cell] = {}
        for cell in self.missing:
            first.setdefault((cell.stage, cell.op), cell)
        home = {cell.stage: rank for cell, rank in self.rank_of.items()}
        for cell in first.values():
            if self.rank_of.keys() >= {*self.step.of(cell)}:
                yield cell, home.get(cell.stage, cell.stage % len(self.rows))

    @cached_property
    def step(self) -> Dependencies:
        return Dependencies([[tuple(self.wanted)]])

    def _needs(self, cells: Iterable[Cell]) -> dict[Cell, list[Cell]]:
        """For each cell, those that it waits for: the previous one of its microbatch and the previous one in its
        row."""
        among = set(cells)
        needs: dict[Cell, list[Cell]] = {cell: [] for cell in among}
        for batch in range(self.batches):
            way = list(self._way(batch))
            for before, cell in pairwise(cell for cell in way if cell in among):
                needs[cell].append(before)
            for stage in range(self.stages):
                if (weight := Cell(stage, "W", batch)) in among:
                    until = way[: way.index(Cell(stage, "I", batch)) + 1]
                    needs[weight] += [cell for cell in until if cell in among][-1:]
        for row in self.rows:
            for before, cell in pairwise(row):
                needs[cell].append(before)
        return needs

    def _way(self, batch: int) -> Iterator[Cell]:
        """The cells of a microbatch: forward through all stages, and back."""
        back = "I" if self.halves else "B"
        yield from (Cell(stage, "F", batch) for stage in range(self.stages))
        yield from (Cell(stage, back, batch) for stage in reversed(range(self.stages)))


def reached(cell: Cell, links: Links) -> dict[Cell, Cell]:
    """All cells that the links lead to, each with the previous one on the way."""
    through = {linked: linked for linked in links[cell]}
    queue = deque(through)
    while queue:
        here = queue.popleft()
        for linked in links[here]:
            if linked not in through:
                through[linked] = through[here]
                queue.append(linked)
    return through


def inverse(links: Links) -> dict[Cell, list[Cell]]:
    """The reversed links."""
    turned: dict[Cell, list[Cell]] = {cell: [] for cell in links}
    for cell, others in links.items():
        for other in others:
            turned[other].append(cell)
    return turned


def _refusal(cell: Cell, row: Sequence[Cell], at: int, earlier: Mapping[Cell, Cell], later: Mapping[Cell, Cell]) -> str:
    """Why a cell cannot be at an index of a row: a cell that must come before it would come after it, or the
    reverse."""
    behind = next((other for other in reversed(row[at:]) if other in earlier), None)
    if behind is not None:
        through = earlier[behind]
        waits = f"needs {through}" if through == behind else f"waits for {through}, which waits for {behind}"
        return f"{cell} {waits}: put it after {behind}"
    ahead = next((other for other in row[:at] if other in later), None)
    if ahead is not None:
        through = later[ahead]
        waits = f"needs {cell}" if through == ahead else f"waits for {through}, which waits for {cell}"
        return f"{ahead} {waits}: put {cell} before {ahead}"
    return ""


@dataclass(frozen=True)
class BegunTable(Timetable):
    """The cells of a draft whose inputs are made by other cells of it, in the order of their rows."""

    count: int = 1
    has_tags: bool = False

    @classmethod
    def of_draft(cls, draft: Draft, has_tags: bool) -> BegunTable:
        """All cells that can be computed."""
        rows = tuple(tuple((cell,) for cell in row) for row in draft.computable())
        return cls(rows, count=draft.stages, has_tags=has_tags)

    def __post_init__(self) -> None:
        object.__setattr__(self, "needs", Dependencies(self.rows, self.count))
        if DryRun(self.rows, self.tag, self.needs).stuck:
            raise RuleError(SAYS("messages change places"))

    @property
    def tags(self) -> tuple[Tagging, ...]:
        return super().tags if self.has_tags else (untagged,)

    @property
    def stages(self) -> int:
        return self.count


def begun(table: BegunTable, sharded: bool = False) -> Callable[[Model], Coroutine[Any, Any, None]]:
    """The schedule that computes these cells as `pipeline` does, and updates layers whose gradients are complete."""

    async def schedule(model: Model) -> None:
        await _BegunRank(model, table, recompute=False, sharded=sharded, buffered=False).train()

    return schedule


class _BegunRank(TimetableRank):
    """One rank, which may end early."""

    async def update(self, layer: int) -> None:
        grad = self.model.grad_weights.get(layer)
        replicas = 1 if self.sharded else self.replicas  # whose gradients come later
        if grad is not None and replicas * len(grad.batches) == self.model.BATCHES:
            await super().update(layer)

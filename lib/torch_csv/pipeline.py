"""The pipeline in a trace: its stages, and which operations each cell is made of. What PyTorch has no word for is
refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from lib import PuzzleError, RuleError, Setting, Trace
from lib.communication.meetings import Mesh
from lib.game.costs import PAIR
from lib.judging.recomputation import Recomputation
from lib.recognition.computed import Grid, Part, RankWork, grid_of
from lib.recognition.rows import placement_of
from lib.schedules import Cell, Timetable
from lib.schedules.cells import Slot

from .words import SAYS

Cells = Mapping[Cell, Sequence[int]]
"""The cells of a rank in their order, each with the indices of its operations on that rank, ascending."""


class Replica(NamedTuple):
    """What each rank of a replica does, in the order of ranks, and its cells. `batches` has the number of each
    microbatch in the cells: the last stage takes them in order, or PyTorch would mistake one's loss for
    another's."""

    works: Sequence[RankWork]
    cells: Sequence[Cells]
    batches: Mapping[int, int]


@dataclass(frozen=True)
class Pipeline:
    """The pipeline of a trace, whose replicas have one order. A stage is as many layers of a rank as follow each other;
    where two stages of a rank meet, in the middle of a V, the layers are divided between them."""

    trace: Trace
    table: Timetable
    stage_of: Sequence[int]
    """By layer."""
    replicas: Sequence[Replica]

    @property
    def depths(self) -> list[int]:
        """By stage, its layers."""
        return [list(self.stage_of).count(stage) for stage in range(self.table.stages)]

    def only(self) -> Replica:
        """The replica, if there is one.

        Raises:
            RuleError: there are several; the text has the options of a game with one.
        """
        first = self.replicas[0]
        if len(self.replicas) == 1:
            return first
        axes, ranks, size = self.trace.setting.mesh, [work.rank for work in first.works], self.trace.size
        play = f"--size {size.layers},{len(first.batches)},{len(ranks)}"
        mesh = Mesh(axes, size.ranks)
        lengths = (f"{axis}={len({mesh.index(rank, axis) for rank in ranks})}" for axis, _ in axes)
        play += f" --mesh {','.join(lengths)}" if axes else ""
        raise RuleError(
            f"this run has {len(self.replicas)} replicas of a pipeline, and here PyTorch runs one; play one with {play}"
        )

    @classmethod
    def of(cls, trace: Trace) -> Pipeline:
        """The pipeline of a correct trace.

        Raises:
            RuleError: it is not correct, or cannot be said in PyTorch's cells; the text says why.
        """
        _require_expressible(trace.setting)
        recomputation = Recomputation(trace)
        try:
            recomputation.run()
        except PuzzleError as why:
            raise RuleError(f"only a correct run can be exported: {why}") from None
        works = [RankWork(state) for state in recomputation.ranks]
        for rank in (work.rank for work in works if not work.parts):
            raise RuleError(f"rank {rank} computes nothing; in a pipeline of PyTorch each rank has a stage")
        for work in works:
            _require_one_by_one(work)
        _require_one_step(trace.setting)
        for work in works:
            _require_cells(work)
        grid = _grid(works)
        if len(grid.stages) == 1 and len(grid.replicas) > 1:
            raise RuleError("each rank has all layers, so this is not a pipeline; in PyTorch, DDP and FSDP do that")
        stage_of = placement_of(grid).stage_of
        replicas = [_replica(grid, number, stage_of) for number in range(len(grid.replicas))]
        first = replicas[0]
        for other in replicas[1:]:
            for work, first_cells, other_cells in zip(other.works, first.cells, other.cells):
                if list(first_cells) != list(other_cells):
                    raise RuleError(
                        f"rank {work.rank} has another order than in the first replica; a file has only one"
                    )
        table = Timetable.of(slots_of(work, row) for work, row in zip(first.works, first.cells))
        return cls(trace, table, stage_of, replicas)


def slots_of(work: RankWork, cells: Cells) -> Iterator[Slot]:
    """The cells of a rank in order; those whose layers are all paired with each other are one slot."""

    def together(entry: tuple[Cell, Sequence[int]]) -> object:
        cell, indices = entry
        return tuple(indices) if all(work.ops[i].name == PAIR for i in indices) else cell

    for _, of in groupby(cells.items(), key=together):
        yield tuple(cell for cell, _ in of)


def _require_expressible(setting: Setting) -> None:
    if setting.task != "train":
        raise RuleError(f"PyTorch's cells are for training, and this run is for the task {setting.task!r}")
    if setting.frozen:
        raise RuleError(
            "this run has frozen layers, and a stage of PyTorch has a backward of every microbatch; play one without "
            "Setting(frozen=...)"
        )


def _require_one_by_one(work: RankWork) -> None:
    for part in work.parts:
        if len(part.batches) != 1:
            raise RuleError(
                f"rank {work.rank} computes {work.ops[part.at].call()} of {_named(part.batches)} at once; a cell has "
                "one microbatch, so take them one by one"
            )


def _require_one_step(setting: Setting) -> None:
    if setting.steps > 1:
        raise RuleError(
            f"this run has {setting.steps} steps, and microbatches of different steps have no place in a file of one "
            "step; play one step, with --steps 1 or Setting(steps=1)"
        )


def _require_cells(work: RankWork) -> None:
    """Refuses what has no cell."""
    for at in sorted(work.again):
        op = work.ops[at]
        raise RuleError(SAYS("computed twice", rank=work.rank, call=op.call(), batches=_named(op.batches)))
    if work.shards:
        raise RuleError(
            f"rank {work.rank} computes with a part of a weight; in a pipeline of PyTorch a stage has full weights, "
            "and tensor parallelism is inside it"
        )


def _named(batches: frozenset[int]) -> str:
    return f"microbatch{'es' if len(batches) > 1 else ''} {', '.join(map(str, sorted(batches)))}"


def _grid(works: Sequence[RankWork]) -> Grid:
    """How stages lie on ranks: each microbatch goes through each layer on one rank."""
    grid = grid_of(works)
    owner: dict[tuple[int, int], int] = {}
    for work in works:
        for part in work.parts:
            (batch,) = part.batches
            rank = owner.setdefault((part.layer, batch), work.rank)
            if rank != work.rank:
                raise RuleError(
                    f"layer {part.layer} of microbatch {batch} is computed on rank {rank} and on rank {work.rank}; "
                    "a stage of PyTorch is on one rank, with its forwards and backwards"
                )
    if grid is None:
        raise RuleError(
            "the ranks have different layers for different microbatches; a stage of PyTorch is on one rank for all"
        )
    layers = [sorted(stage) for stage in grid.stages]
    if len({layer for stage in layers for layer in stage}) < sum(map(len, layers)):
        raise RuleError("a layer is on several ranks, next to different layers; a stage of PyTorch is on one rank")
    return grid


def _replica(grid: Grid, number: int, stage_of: Sequence[int]) -> Replica:
    ranks = sorted((grid.of(place, number)[0] for place in range(len(grid.stages))), key=lambda work: work.rank)
    last = [part for work in ranks for part in work.parts if (part.layer, part.half) == (len(stage_of) - 1, "F")]
    batches = {batch: n for n, part in enumerate(last) for batch in part.batches}
    return Replica(ranks, [_cells(work, stage_of, batches) for work in ranks], batches)


def _cells(work: RankWork, stage_of: Sequence[int], batches: Mapping[int, int]) -> Cells:
    """The cells of a rank: each stands where the last of its operations does."""
    pieces: dict[tuple[int, int], list[Part]] = {}
    for part in work.parts:
        (batch,) = part.batches
        pieces.setdefault((stage_of[part.layer], batches[batch]), []).append(part)
    cells = [cell for piece, parts in pieces.items() for cell in _cells_of(work, piece, parts)]
    return dict(sorted(cells, key=lambda pair: (pair[1][-1], "FBIW".index(pair[0].op))))


def _cells_of(work: RankWork, piece: tuple[int, int], parts: Sequence[Part]) -> Iterator[tuple[Cell, list[int]]]:
    """The cells of a microbatch in a stage: F and B, or F, I and W."""
    stage, batch = piece
    indices = {half: [part.at for part in parts if part.half == half] for half in "FIW"}
    yield Cell(stage, "F", batch), indices["F"]
    whole = set(indices["I"]) & set(indices["W"])
    if whole and whole != set(indices["W"]):
        raise RuleError(
            f"rank {work.rank} computes the backward of microbatch {batch} in stage {stage} partly in halves; take "
            "halves in all layers of a stage, or in none"
        )
    back = sorted({*indices["I"], *indices["W"]})
    # Without an input half (of layer 0), or with one that comes last, both halves are done where the last of them is.
    if whole or not indices["I"] or indices["I"][-1] > indices["W"][-1]:
        yield Cell(stage, "B", batch), back
    else:
        yield Cell(stage, "I", batch), indices["I"]
        yield Cell(stage, "W", batch), indices["W"]

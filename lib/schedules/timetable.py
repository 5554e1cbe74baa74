"""A timetable: what each rank of a pipeline computes, in order. It is data, made by a formula, a solver or a person."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Self

from lib import DeadlockError, Op, RuleError, Trace, halves
from lib.communication.meetings import Mesh
from lib.game.costs import PAIR
from lib.values.algebra import counted

from .cells import (
    Cell,
    Dependencies,
    DryRun,
    Message,
    Slot,
    Tagging,
    by_message,
    by_stream,
    in_order,
    require_complete,
    untagged,
)
from .words import SAYS

CELL = re.compile(r"(\d{1,6})([A-Z])(\d{1,6})")


@dataclass(frozen=True)
class Timetable:
    """The slots of each rank, in order. A stage lies on the rank that has its cells, or with `copies` on so many ranks,
    each with its own microbatches. Printed, a rank is a line:

        0F0 0F1 0B0 0B1
        1F0 1B0 1F1 1B1

    Raises:
        RuleError: a cell is unknown, missing or occurs twice, or a stage has cells on more ranks.
        DeadlockError: cells wait for each other; the message names them.
    """

    rows: tuple[tuple[Slot, ...], ...]
    copies: int = field(default=1, kw_only=True)
    """The most ranks on which a stage may lie."""
    needs: Dependencies = field(init=False, repr=False, compare=False)
    """What each cell needs, and the resulting messages."""

    def __post_init__(self) -> None:
        require_complete(self.rows, self.copies)
        object.__setattr__(self, "needs", Dependencies(self.rows))
        if len([*in_order(self.rows, self.needs)]) < sum(map(len, self.rows)):
            raise DeadlockError(DryRun(self.rows, by_message(self.stages), self.needs).explain())

    @cached_property
    def tag(self) -> Tagging:
        """The tag of each message: 0 for all if that can be played, else one for each stream, else one for each
        message."""
        return next((tag for tag in self.tags if not DryRun(self.rows, tag, self.needs).stuck), self.tags[-1])

    @property
    def tags(self) -> tuple[Tagging, ...]:
        """The taggings that are tried."""
        return untagged, by_stream, by_message(self.stages)

    @classmethod
    def of(cls, rows: Iterable[Iterable[Cell | Slot]]) -> Self:
        """The timetable of rows, whose items are cells or slots."""
        return cls(tuple(tuple((item,) if isinstance(item, Cell) else item for item in row) for row in rows))

    @classmethod
    def read(cls, text: str) -> Self:
        """Reads a printed timetable. Cells may be separated by blanks, or by commas as in a CSV file, where an empty
        cell is a bubble. Cells that start together are in parentheses, as in (0F4;7B1).

        Raises:
            RuleError: naming the line and the text that is not a cell.
        """
        lines = [line.strip() for line in text.splitlines()]
        rows = ((number, re.split(r"[\s,]+", line)) for number, line in enumerate(lines, 1) if line)
        return cls(tuple(tuple(_slot(word, number) for word in words if word) for number, words in rows))

    def __str__(self) -> str:
        return "\n".join(
            " ".join(str(slot[0]) if len(slot) == 1 else f"({';'.join(map(str, slot))})" for slot in row)
            for row in self.rows
        )

    @property
    def cells(self) -> list[Cell]:
        """All cells, rank by rank."""
        return [cell for row in self.rows for slot in row for cell in slot]

    @property
    def ranks(self) -> int:
        return len(self.rows)

    @cached_property
    def stages(self) -> int:
        return 1 + max(cell.stage for cell in self.cells)

    @cached_property
    def batches(self) -> int:
        """Microbatches in a step."""
        return 1 + max(cell.batch for cell in self.cells)

    @cached_property
    def exchanges(self) -> Sequence[Sequence[tuple[Cell, Message | None, Message | None]]]:
        """For each rank its cells in order, each with the message that it needs and the message that it makes."""
        messages = [*self.needs.sent(tuple(self.cells))]
        received = {message.used: message for message in messages}
        sent = {message.made: message for message in messages}
        return [[(cell, received.get(cell), sent.get(cell)) for slot in row for cell in slot] for row in self.rows]

    def stages_of(self, rank: int) -> list[int]:
        """The stages that lie on a rank, ascending."""
        return sorted({cell.stage for slot in self.rows[rank] for cell in slot})

    @cached_property
    def ranks_of(self) -> Mapping[int, tuple[int, ...]]:
        """The ranks on which each stage lies, nearly always one."""
        stages = [set(self.stages_of(rank)) for rank in range(self.ranks)]
        return {stage: tuple(r for r, some in enumerate(stages) if stage in some) for stage in range(self.stages)}


def _slot(word: str, number: int) -> Slot:
    names = word[1:-1].split(";") if word.startswith("(") and word.endswith(")") else [word]
    matches = [CELL.fullmatch(name) for name in names]
    if None in matches:
        raise RuleError(f"line {number} has {word[:40]!r}, which is not a cell; a cell is written as 2F5 or (0F4;7B1)")
    return tuple(Cell(int(m[1]), m[2], int(m[3])) for m in matches if m)


LETTERS = {"forward": "F", "backward": "B", "backward_input": "I", "backward_weight": "W"}


def timetable_of(trace: Trace, stages: int) -> Timetable:
    """The timetable of the first training step of a run, whose layers are split into equal stages; on a mesh, of the
    ranks along the axis pp.

    Raises:
        RuleError: there is none: a rank computes several microbatches at once, or something twice, or a layer within
            another stage; or later steps, or other replicas, have another order.
        DeadlockError: its messages wait for each other.
    """
    depth, left = divmod(trace.size.layers, stages)
    if left:
        raise RuleError(f"{counted(trace.size.layers, 'layer')} cannot be cut into {stages} equal stages")
    all_rows = [list(_cells(rank, ops, depth)) for rank, ops in enumerate(trace.ranks)]
    axes = trace.setting.mesh or (("pp", len(all_rows)),)
    mesh = Mesh(axes, len(all_rows))
    along = [name for name, _ in axes if name == "pp"]
    pipelines = sorted({mesh.along(rank, along) for rank in range(mesh.ranks)})
    rows, *others = [_numbered([all_rows[rank] for rank in ranks]) for ranks in pipelines]
    if any(other != rows for other in others):
        raise RuleError(SAYS("replicas differ"))
    steps = trace.setting.steps
    for rank, row in enumerate(rows):
        once = row[: len(row) // steps]
        if row != once * steps:
            raise RuleError(f"rank {rank} computes another order in a later step; a timetable has one order for all")
        rows[rank] = once
    return Timetable.of(rows)


def _numbered(rows: list[list[Slot]]) -> list[list[Slot]]:
    """A pipeline's rows with microbatches numbered from 0."""
    batches = sorted({cell.batch for row in rows for slot in row for cell in slot})
    number = {batch: at for at, batch in enumerate(batches)}
    return [[tuple(cell._replace(batch=number[cell.batch]) for cell in slot) for slot in row] for row in rows]


def _cells(rank: int, ops: tuple[Op, ...], depth: int) -> Iterator[Slot]:
    """The cells of a rank: each has consecutive operations of its layers. A pair of single layers is a slot of two
    cells."""
    done: list[int] = []
    cell = None
    for op in ops:
        if op.name == PAIR:
            if depth > 1 or done:
                raise RuleError(f"rank {rank} pairs layers of stages with {depth} layers; a pair is of full stages")
            yield tuple(Cell(half.layer or 0, LETTERS[half.name], *half.batches) for half in halves(op))
        if op.name not in LETTERS or op.layer is None:
            continue
        if len(op.batches) != 1:
            raise RuleError(SAYS("several microbatches", rank=rank, batches=len(op.batches), name=op.name))
        here = Cell(op.layer // depth, LETTERS[op.name], *op.batches)
        if done and here != cell:
            raise RuleError(SAYS("begun too early", rank=rank, begun=here, depth=depth, cell=cell))
        cell = here
        done.append(op.layer)
        if len(done) == depth:
            yield (cell,)
            done = []
    if done:
        raise RuleError(f"rank {rank} never computes all {depth} layers of {cell}")

"""A timetable: what each rank of a pipeline computes, in order. It is data, made by a formula, a solver or a person.

Its smallest part is a cell. An order of cells can be played if each finds what it needs, and if messages do not change
places in the mailboxes between two ranks.

This module decides which rows are one training step, which cells wait for which, and which messages and tags follow
from that. It has no times: `player` plays a timetable under the costs of a game, and `solver.solving` times one.

A timetable is checked by one walk over its cells. A dry run with mailboxes finds the same and took half of the time of
making a timetable. So it is made only where messages are sent, for their tags, and where the walk fails, to name the
cells that wait for each other.
"""

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple, Self

from lib import DeadlockError, Op, RuleError, Trace, halves
from lib.errors import Sentences
from lib.ledger.algebra import counted, named
from lib.ledger.costs import PAIR
from lib.ledger.meetings import Mesh

# --- Cells, what they need, and whether an order of them can be played ---

OPERATIONS = {"F": "forward", "B": "backward", "I": "the input half of backward", "W": "its weight half"}
"""The operation of a cell. B is I and W in one piece (Zero Bubble calls I "B")."""


class Cell(NamedTuple):
    """One microbatch in one stage, written as PyTorch does: `2F5` is the forward of microbatch 5 through stage 2."""

    stage: int
    op: str
    batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.batch}"


Slot = tuple[Cell, ...]
"""Cells that a rank starts together, nearly always one. If there are more, all inputs are received before the first is
computed, and all outputs are sent after the last."""

Rows = Sequence[Sequence[Slot]]
"""For each rank its slots, in order."""


class Message(NamedTuple):
    """A result of one cell of rank `source`, used in a cell of rank `to`."""

    source: int
    to: int
    made: Cell
    used: Cell

    @property
    def stream(self) -> int:
        """A number for the activations of each stage, and one for the gradients."""
        return 2 * self.made.stage + (self.made.op != "F")


class Dependencies:
    """What the cells of some rows need; the rows may be part of a step with `stages` stages."""

    def __init__(self, rows: Rows, stages: int = 0) -> None:
        self.rank_of = {cell: rank for rank, row in enumerate(rows) for slot in row for cell in slot}
        self._last = stages - 1 if stages else max(cell.stage for cell in self.rank_of)
        self._forward: dict[tuple[int, int], Cell] = {}
        self._backward: dict[tuple[int, int], Cell] = {}
        for cell in self.rank_of:
            if cell.op != "W":
                (self._forward if cell.op == "F" else self._backward)[cell.stage, cell.batch] = cell

    def of(self, cell: Cell) -> list[Cell]:
        """The cells whose results a cell uses."""
        stage, op, batch = cell
        if op == "F":
            return [self._forward[stage - 1, batch]] if stage else []
        if op == "W":
            return [self._backward[stage, batch]]
        later = [self._backward[stage + 1, batch]] if stage < self._last else []
        return [self._forward[stage, batch], *later]

    def received(self, slot: Slot) -> Iterator[Message]:
        """The messages that a slot receives from other ranks."""
        for cell in slot:
            for needed in self.of(cell):
                if self.rank_of[needed] != self.rank_of[cell]:
                    yield Message(self.rank_of[needed], self.rank_of[cell], needed, cell)

    def sent(self, slot: Slot) -> Iterator[Message]:
        """The messages that a slot sends to other ranks."""
        for cell in slot:
            used = self._next(cell)
            if used is not None and self.rank_of[used] != self.rank_of[cell]:
                yield Message(self.rank_of[cell], self.rank_of[used], cell, used)

    def _next(self, cell: Cell) -> Cell | None:
        """The cell of the next stage, or in backward of the previous stage, that uses this one's result."""
        if cell.op == "F":
            return self._forward.get((cell.stage + 1, cell.batch))
        return self._backward.get((cell.stage - 1, cell.batch)) if cell.op != "W" else None


def in_order(rows: Rows, needs: Dependencies) -> Iterator[tuple[int, int]]:
    """The rank and the index of each slot, after all slots whose results it uses; of slots that wait for others in a
    circle, and of what comes after them, nothing."""
    done, begun = set[Cell](), [0] * len(rows)

    def is_ready(slot: Slot) -> bool:
        if len(slot) == 1:  # nearly always, and quicker
            return done.issuperset(needs.of(slot[0]))
        return all(needed in done or needed in slot[:at] for at, cell in enumerate(slot) for needed in needs.of(cell))

    goes_on = True
    while goes_on:
        goes_on = False
        for rank, row in enumerate(rows):
            while begun[rank] < len(row):
                slot = row[begun[rank]]
                if not is_ready(slot):
                    break
                yield rank, begun[rank]
                done.update(slot)
                begun[rank] += 1
                goes_on = True


Tagging = Callable[[Message], int]
"""Gives each message a tag. Between two ranks there is one mailbox for each tag, and it holds one unread message."""


def untagged(_: Message) -> int:
    """One mailbox between two ranks."""
    return 0


def by_stream(message: Message) -> int:
    """One mailbox for the activations of a stage, and one for its gradients."""
    return message.stream


def by_message(stages: int) -> Tagging:
    """One mailbox for each message, so that none is ever full."""
    return lambda message: message.stream + 2 * stages * message.made.batch


def require_complete(rows: Rows, copies: int) -> None:
    """Refuses rows that are not one training step, with each stage on at most `copies` ranks."""
    if not all(rows):
        raise RuleError(SAYS("rank without cells", rank=list(map(bool, rows)).index(False)))
    placed = [(cell, rank) for rank, row in enumerate(rows) for slot in row for cell in slot]
    if not placed:
        raise RuleError("this timetable has no cells; each rank has a row of them, such as 0F0 0B0")
    ranks_of: dict[int, list[int]] = {}
    rank_of: dict[tuple[int, int], int] = {}
    done: defaultdict[tuple[int, int], str] = defaultdict(str)
    for (stage, op, batch), rank in placed:
        if op not in OPERATIONS or stage < 0 or batch < 0:
            raise RuleError(f"there is no cell {stage}{op}{batch}; a cell is a stage, F, B, I or W, and a microbatch")
        ranks = ranks_of.setdefault(stage, [])
        if rank not in ranks:
            ranks.append(rank)
            if len(ranks) > copies:
                others, where = named("rank", ranks[:-1]), "one rank" if copies == 1 else f"{copies} ranks"
                raise RuleError(SAYS("stage on several ranks", stage=stage, others=others, rank=rank, where=where))
        if (first := rank_of.setdefault((stage, batch), rank)) != rank:
            raise RuleError(SAYS("microbatch on several ranks", batch=batch, stage=stage, first=first, rank=rank))
        done[stage, batch] += op
    if (place := first_incomplete(done)) is not None:
        stage, batch = place
        has = " ".join(sorted(done[place])) or "nothing"
        raise RuleError(SAYS("incomplete cells", batch=batch, stage=stage, has=has))


def first_incomplete(done: Mapping[tuple[int, int], str]) -> tuple[int, int] | None:
    """Of the operations of each stage and microbatch: the first that are not F and B, or F, I and W, each once."""
    batches = range(1 + max(batch for _, batch in done))
    for stage in range(1 + max(stage for stage, _ in done)):
        for batch in batches:
            has = done.get((stage, batch), "")
            if has not in ("FB", "FIW") and "".join(sorted(has)) not in ("BF", "FIW"):
                return stage, batch
    return None


class Action(NamedTuple):
    """One step of a rank: it receives or sends a message, or computes a cell. `cell` is that cell's index in the
    row."""

    cell: Cell
    message: Message | None = None
    sends: bool = False


def actions(row: Sequence[Slot], needs: Dependencies) -> Iterator[Action]:
    """The actions of a rank for its slots, in order."""
    for slot in row:
        yield from (Action(message.used, message) for message in needs.received(slot))
        yield from (Action(cell) for cell in slot)
        yield from (Action(message.made, message, sends=True) for message in needs.sent(slot))


class DryRun:
    """The actions of all ranks, performed as far as possible."""

    def __init__(self, rows: Rows, tag: Tagging, needs: Dependencies | None = None) -> None:
        self.needs, self.tag = needs or Dependencies(rows), tag
        self._left = [deque(actions(row, self.needs)) for row in rows]
        self._boxes: dict[tuple[int, int, int], Message] = {}
        self._done: set[Cell] = set()
        while sum(map(self._advance, self._left)):  # not any(): every rank goes as far as it can
            pass
        self.stuck = {rank: left[0] for rank, left in enumerate(self._left) if left}
        """By rank: the action that can never be performed. Empty if all can be played."""

    def _advance(self, left: deque[Action]) -> bool:
        before = len(left)
        while left and self._can(left[0]):
            left.popleft()
        return len(left) < before

    def _can(self, action: Action) -> bool:
        """Performs an action, if that is possible now."""
        cell, message, sends = action
        if message is None:
            here = [needed for needed in self.needs.of(cell) if self.needs.rank_of[needed] == self.needs.rank_of[cell]]
            ready = self._done.issuperset(here)
            self._done |= {cell} if ready else set()
            return ready
        box = message.source, message.to, self.tag(message)
        if sends:
            return self._boxes.setdefault(box, message) is message
        if self._boxes.get(box) != message:
            return False
        del self._boxes[box]
        return True

    def explain(self) -> str:
        """Says which rank waits for which, from the first stuck rank until a rank occurs again."""
        rank, chain = min(self.stuck), dict[int, str]()
        while rank not in chain:
            cell, missing = self.stuck[rank].cell, self._missing(self.stuck[rank])
            other = self.needs.rank_of[missing]
            stuck = self.stuck[other].cell
            chain[rank] = f"{cell} on rank {rank} waits for {missing}"
            chain[rank] += f", which comes after {stuck} on rank {other}" if stuck != missing else ""
            rank = other
        return f"this order cannot be played: {'; '.join(chain.values())}. Move one of these cells"

    def _missing(self, action: Action) -> Cell:
        """The cell that a stuck action waits for."""
        if action.message is not None:
            return action.message.made
        return next(needed for needed in self.needs.of(action.cell) if needed not in self._done)


# --- Timetables ---

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
        few = (tag for tag in (untagged, by_stream) if not DryRun(self.rows, tag, self.needs).stuck)
        return next(few, by_message(self.stages))

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

    def stages_of(self, rank: int) -> list[int]:
        """The stages that lie on a rank, ascending."""
        return self._stages_of[rank]

    @cached_property
    def _stages_of(self) -> list[list[int]]:
        return [sorted({cell.stage for slot in row for cell in slot}) for row in self.rows]

    @cached_property
    def ranks_of(self) -> Mapping[int, tuple[int, ...]]:
        """The ranks on which each stage lies, nearly always one."""
        return {
            stage: tuple(rank for rank, stages in enumerate(self._stages_of) if stage in stages)
            for stage in range(self.stages)
        }


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


SAYS = Sentences(
    {
        "rank without cells": "rank {rank} has no cells; a timetable has work for every rank",
        "stage on several ranks": "stage {stage} has cells on {others} and on rank {rank}; put all on {where}",
        "microbatch on several ranks": "microbatch {batch} in stage {stage} is on rank {first} and on rank {rank}; put it on one",
        "incomplete cells": "for microbatch {batch} stage {stage} has {has}; it needs F and B once, or F, I and W once",
        "replicas differ": "a replica computes another order than the others; a timetable has one order for all",
        "several microbatches": "rank {rank} computes {batches} microbatches in one {name}; take one at a time",
        "begun too early": "rank {rank} begins {begun} before it has computed all {depth} layers of {cell}",
    }
)

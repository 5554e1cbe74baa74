"""Schedules of pipelines as PyTorch exchanges them: a CSV file with a row for each rank and a cell for each action.

from lib.pipelines.torch_csv import read_csv, write_csv

`write_csv(trace)` is what `torch.distributed.pipelining` loads (tried with PyTorch 2.13), `read_csv(text)` the
timetable that such a file holds. Neither needs torch.

This module decides which runs PyTorch can express. Every other run is refused with what to play instead, since PyTorch
runs a file unchecked. The messages of a file are not read, because they follow from the order of its cells; they are
written as the trace has them.

`timetable_of` reads a timetable from a trace as well. It is told the number of stages, and allows cut layers and
several steps. Here stages follow from the layers of the ranks, and each cell knows its operations, so that measured
times of cells become times of events.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from lib import Activation, ActivationGrad, PuzzleError, RuleError, Trace, Weight, WeightGrad
from lib.errors import Sentences
from lib.ledger.costs import PAIR
from lib.ledger.lanes import Cursor, Walk
from lib.ledger.meetings import Call, Mesh
from lib.ledger.recomputation import Recomputation
from lib.ledger.setting import Game
from lib.ledger.trace import Op, group_of

from .rank_work import Grid, Part, RankWork, grid_of, placement_of
from .timetable import Cell, Slot, Timetable

SAYS = Sentences(
    {
        "sent several times": "rank {rank} sends the result of {made} to the rank of {used} {count} times; PyTorch "
        "sends it once, as a message between the two{advice}",
        "value not sent": "rank {rank} {words} the {value}, which PyTorch does not send between stages{advice}",
        "sent past stages": "rank {rank} {words} the {value}, which goes from stage {source} to stage {to}; PyTorch "
        "sends it directly between their ranks{advice}",
        "computed twice": "rank {rank} computes {call} of {batches} a second time; a file has each cell once, and "
        "PyTorch recomputes inside a stage (torch.utils.checkpoint): leave that to the stage",
    }
)


# --- The pipeline in a trace; what PyTorch has no word for is refused ---

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
        if trace.setting.task != "train":
            raise RuleError(f"PyTorch's cells are for training, and this run is for the task {trace.setting.task!r}")
        if trace.setting.frozen:
            raise RuleError(
                "this run has frozen layers, and a stage of PyTorch has a backward of every microbatch; play one "
                "without Setting(frozen=...)"
            )
        recomputation = Recomputation(trace)
        try:
            recomputation.run()
        except PuzzleError as why:
            raise RuleError(f"only a correct run can be exported: {why}") from None
        works = [RankWork(state) for state in recomputation.ranks]
        for rank in (work.rank for work in works if not work.parts):
            raise RuleError(f"rank {rank} computes nothing; in a pipeline of PyTorch each rank has a stage")
        _require_cells(works, trace.setting.steps)
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


def _require_cells(works: Sequence[RankWork], steps: int) -> None:
    """Refuses what has no cell."""
    for work in works:
        for part in work.parts:
            if len(part.batches) != 1:
                raise RuleError(
                    f"rank {work.rank} computes {work.ops[part.at].call()} of {_named(part.batches)} at once; a cell "
                    "has one microbatch, so take them one by one"
                )
    if steps > 1:
        raise RuleError(
            f"this run has {steps} steps, and microbatches of different steps have no place in a file of one step; "
            "play one step, with --steps 1 or Setting(steps=1)"
        )
    for work in works:
        for at in sorted(work.again):
            op = work.ops[at]
            raise RuleError(SAYS("computed twice", rank=work.rank, call=op.call(), batches=_named(op.batches)))
        if work.shards:
            raise RuleError(
                f"rank {work.rank} computes with a part of a weight; in a pipeline of PyTorch a stage has full "
                "weights, and tensor parallelism is inside it"
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


# --- When PyTorch did what a trace says: the measured times of cells, for each event of the trace ---

Span = tuple[float, float]
CellTimes = Sequence[Mapping[str, Span]]
"""By rank, the start and end of each cell by its name."""


def event_times(pipeline: Pipeline, measured: CellTimes) -> list[list[Span]]:
    """By rank, the start and end of each event of the trace. The operations of a cell share its time equally, and what
    has no cell takes none: a message is sent at the end of the cell that made it, and received at the start of the cell
    that uses it."""
    only = pipeline.only()
    ranks = [_RankTimes(only, place, times) for place, times in enumerate(measured)]
    _Times(pipeline.trace, ranks).walk()
    rows = []
    for rank in ranks:
        timed = {id(op) for op in pipeline.trace.events(rank.rank)}
        rows.append([rank.spans[at] for at, op in enumerate(rank.ops) if id(op) in timed])
    return rows


class _RankTimes(Cursor):
    """A rank with what is known of its times: `spans` by operation; by value, the start of the first cell that `uses`
    it, and when it is `there`: made by a cell, or received."""

    def __init__(self, replica: Replica, place: int, times: Mapping[str, Span]) -> None:
        work = replica.works[place]
        super().__init__(work.rank, work.ops)
        self.now = 0.0
        self.spans: dict[int, Span] = {}
        self.uses: dict[int, float] = {}
        self.there: dict[int, float] = {}
        for cell, ats in replica.cells[place].items():
            start, end = times[str(cell)]
            length = (end - start) / len(ats)
            for n, at in enumerate(ats):
                self.spans[at] = start + n * length, start + (n + 1) * length
                for value in work.ops[at].inputs:
                    self.uses[value] = min(start, self.uses.get(value, start))
                self.there.update(dict.fromkeys(work.ops[at].outputs, end))


class _Times(Walk[_RankTimes]):
    """Gives every operation a time, a send before its receive. A call has its time where it is made."""

    def __init__(self, trace: Trace, ranks: Sequence[_RankTimes]) -> None:
        super().__init__(Game.of(trace.size, trace.setting), ranks, buffered=True)
        self.on_lanes = frozenset()

    def on_local(self, cursor: _RankTimes, op: Op) -> None:
        _, cursor.now = cursor.spans.setdefault(cursor.at, (cursor.now, cursor.now))

    def join(self, cursor: _RankTimes, op: Op) -> bool:
        self.on_local(cursor, op)
        cursor.at += 1
        return True

    def on_call(self, cursor: _RankTimes, op: Op) -> Call:
        return self.call(cursor, op, group_of(op), ())

    def perform(self, calls: Sequence[Call]) -> Sequence[tuple[()]]:
        return [()] * len(calls)

    def ticks(self, calls: Sequence[Call], outputs: Sequence[object]) -> int:
        return 0

    def on_end(self, cursor: _RankTimes, call: Call) -> None:
        if call.name != "pass_to":
            return self.on_local(cursor, call.op)
        time = max((cursor.there.get(value, cursor.now) for value in call.op.inputs), default=cursor.now)
        cursor.spans[cursor.at] = time, time

    def on_receive(self, cursor: _RankTimes, op: Op, sender: _RankTimes, sent_at: int) -> None:
        sent = sender.spans[sent_at][1]
        time = max(sent, min((cursor.uses[value] for value in op.outputs if value in cursor.uses), default=sent))
        cursor.spans[cursor.at] = time, time
        cursor.there.update(dict.fromkeys(op.outputs, time))


# --- Files ---

CELL = re.compile(r"(\d{1,6})([FIWB])(\d{1,6})")
COMMUNICATION = re.compile(r"\d{1,6}(?:(?:SEND|RECV)_[FB]\d{1,6}|UNSHARD|RESHARD|REDUCE_GRAD\d{0,6})")
TOGETHER = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
BUBBLES = ("", "None")
WITHOUT = "; or leave out the communication, and PyTorch adds its own"


def read_csv(text: str) -> Timetable:
    """The order of a file, with or without communication, which is left out because it follows from the order. Cells
    that are empty or `None` are bubbles.

    Raises:
        RuleError: naming the row, the column and what is not an action; or the actions are not one training step.
        DeadlockError: cells wait for each other.
    """
    lines = text.removeprefix("\ufeff").splitlines()
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise RuleError("this file is empty; it has a row for each rank, such as 0F0,0F1,0B0,0B1")
    try:
        rows = list(csv.reader(lines))
    except csv.Error as why:
        raise RuleError(f"this file is not CSV: {why}") from None
    return Timetable.of(
        [slot for column, word in enumerate(row, 1) if (slot := _slot(word.strip(), number, column))]
        for number, row in enumerate(rows, 1)
    )


def _slot(word: str, row: int, column: int) -> Slot | None:
    """The cells of an action; None of a bubble and of communication."""
    if word in BUBBLES or COMMUNICATION.fullmatch(word):
        return None
    slot = slot_of(word)
    if slot is None:
        raise RuleError(
            f"row {row}, column {column} has {word[:40]!r}, which is not an action of PyTorch's pipelines; a cell is "
            "written as 2F5, with F, I, W or B, and a message as 2SEND_F5"
        )
    return slot


def slot_of(word: str) -> Slot | None:
    """The cells of 2F5 or (2F5;3B4)OVERLAP_F_B; None of anything else."""
    together = TOGETHER.fullmatch(word)
    cells = [CELL.fullmatch(name.strip()) for name in (together[1].split(";") if together else [word])]
    return None if None in cells else tuple(Cell(int(cell[1]), cell[2], int(cell[3])) for cell in cells if cell)


class Transfer(NamedTuple):
    """A message in a row: sent or received, with the stage of this rank that does it. F is an activation, B a
    gradient."""

    stage: int
    sends: bool
    kind: str
    batch: int

    def __str__(self) -> str:
        return f"{self.stage}{'SEND' if self.sends else 'RECV'}_{self.kind}{self.batch}"

    @property
    def other(self) -> Transfer:
        """What the other rank does."""
        step = 1 if (self.kind == "F") == self.sends else -1
        return Transfer(self.stage + step, not self.sends, self.kind, self.batch)


Action = tuple[int, int, int, Slot | Transfer | str]
"""An action of a rank, after what sorts it: the index of its operation, then two numbers within that operation."""


def write_csv(trace: Trace, communication: bool = False) -> str:
    """A correct trace as CSV: `compute_only` as PyTorch calls it, or with communication `compute_comms`.

    Raises:
        RuleError: the schedule cannot be said so; the text says why.
    """
    pipeline = Pipeline.of(trace)
    if not communication:
        return write_table(pipeline.table)
    return "".join(f"{','.join(row)}\n" for row in _Communication(pipeline).rows())


def write_table(table: Timetable) -> str:
    """A timetable as CSV, in PyTorch's format `compute_only`."""
    return "".join(f"{','.join(map(slot_text, row))}\n" for row in table.rows)


def slot_text(slot: Slot) -> str:
    if len(slot) == 1:
        return str(slot[0])
    if [cell.op for cell in slot] not in (["F", "B"], ["B", "F"]):
        raise RuleError(f"{' and '.join(map(str, slot))} start together; in PyTorch only an F and a B do")
    return f"({';'.join(map(str, slot))})OVERLAP_F_B"


class _Communication:
    """The actions of the ranks of one replica. PyTorch runs them unchecked, so each message that a cell needs must be
    sent once."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.table, self.stage_of = pipeline.table, pipeline.stage_of
        self.needs, self.replica = pipeline.table.needs, pipeline.replicas[0]
        self.place = {work.rank: place for place, work in enumerate(self.replica.works)}
        self.sent: dict[tuple[int, int], list[Transfer]] = {}
        """By sender and receiver, in the order of sending."""
        self.received: dict[Transfer, int] = {}
        """With the index of the operation that receives it."""

    def rows(self) -> list[list[str]]:
        rows = [list(self.actions(place)) for place in range(len(self.replica.works))]
        self.require_sent()
        for (_, to), sends in self.sent.items():
            rows[to] += self.receives(sends)
        ordered = [[action for *_, action in sorted(row, key=itemgetter(0, 1, 2))] for row in rows]
        return [
            [str(action) if isinstance(action, Transfer | str) else slot_text(action) for action in row]
            for row in ordered
        ]

    def require_sent(self) -> None:
        for slot in (slot for row in self.table.rows for slot in row):
            for message in self.needs.sent(slot):
                send = Transfer(message.made.stage, True, "F" if message.made.op == "F" else "B", message.made.batch)
                count = self.sent.get((message.source, message.to), []).count(send)
                if count != 1:
                    rank = self.replica.works[message.source].rank
                    raise RuleError(
                        SAYS(
                            "sent several times",
                            rank=rank,
                            made=message.made,
                            used=message.used,
                            count=count,
                            advice=WITHOUT,
                        )
                    )

    def receives(self, sends: Sequence[Transfer]) -> Iterator[Action]:
        """PyTorch has no tags: messages are received in the order of sending. A receive is only posted where its action
        is, so it may come before the receive of a message that was sent later."""
        at = len(self.table.cells) << 20
        for turn, send in reversed([*enumerate(sends)]):
            at = min(at, self.received.get(send.other, at))
            yield at, 0, turn, send.other

    def actions(self, place: int) -> Iterator[Action]:
        """All that a rank does besides receiving."""
        work, cells = self.replica.works[place], self.replica.cells[place]
        for slot in slots_of(work, cells):
            yield cells[slot[0]][-1], 1, int(slot[0].op == "W"), slot
        for at, op in enumerate(work.ops):
            for number in op.inputs if op.name == "pass_to" else ():
                send, to = self.transfer(place, op.args[0], work.state.values[number], sends=True)
                self.sent.setdefault((place, to), []).append(send)
                yield at, 2, 0, send
            for number in op.outputs if op.name == "receive" else ():
                self.received[self.transfer(place, op.args[0], work.state.values[number], sends=False)[0]] = at
        yield from self.weights(place)

    def transfer(self, place: int, other: int | None, value: object, sends: bool) -> tuple[Transfer, int]:
        """What a value is that is sent to, or received from, another rank; and that rank."""
        rank, words = self.replica.works[place].rank, "sends" if sends else "receives"
        edge = len(self.stage_of)
        if isinstance(value, Activation) and 0 < value.layer < edge:
            kind, source, to = "F", self.stage_of[value.layer - 1], self.stage_of[value.layer]
        elif isinstance(value, ActivationGrad) and 0 <= value.layer < edge - 1:
            kind, source, to = "B", self.stage_of[value.layer + 1], self.stage_of[value.layer]
        else:
            raise RuleError(SAYS("value not sent", rank=rank, words=words, value=value, advice=WITHOUT))
        ends = [self.needs.rank_of[Cell(stage, "F", 0)] for stage in (source, to)]
        own_end, other_end = ends if sends else reversed(ends)
        there = other_end if other is None else self.place.get(other)
        if source == to or (own_end, other_end) != (place, there):
            raise RuleError(
                SAYS("sent past stages", rank=rank, words=words, value=value, source=source, to=to, advice=WITHOUT)
            )
        (batch,) = value.batches
        return Transfer(source if sends else to, sends, kind, self.replica.batches[batch]), other_end

    def weights(self, place: int) -> Iterator[Action]:
        """UNSHARD where the last weight of a stage is gathered, RESHARD after the last use of what was gathered, and
        REDUCE_GRAD where the last gradient of a stage is scattered."""
        work = self.replica.works[place]
        layers = [self.stage_of.count(stage) for stage in range(max(self.stage_of) + 1)]
        gathered: dict[int, list[int]] = {}
        scattered: dict[int, int] = {}
        stage_of_value: dict[int, tuple[int, int]] = {}
        last_use: dict[tuple[int, int], int] = {}
        for at, op in enumerate(work.ops):
            for number in op.inputs:
                if number in stage_of_value and op.name != "await":
                    last_use[stage_of_value[number]] = at
            for number in op.outputs:
                value = work.state.values[number]
                stage = self.stage_of[value.layer] if isinstance(value, Weight | WeightGrad) else -1
                if op.name == "allgather" and isinstance(value, Weight):
                    numbers = gathered.setdefault(stage, [])
                    numbers.append(number)
                    stage_of_value[number] = stage, (len(numbers) - 1) // layers[stage]
                    if len(numbers) % layers[stage] == 0:
                        yield at, 0, -1, f"{stage}UNSHARD"
                if op.name == "scatterreduce" and isinstance(value, WeightGrad):
                    scattered[stage] = scattered.get(stage, 0) + 1
                    if scattered[stage] % layers[stage] == 0:
                        yield at, 3, 1, f"{stage}REDUCE_GRAD"
        for (stage, _), at in last_use.items():
            yield at, 3, 0, f"{stage}RESHARD"

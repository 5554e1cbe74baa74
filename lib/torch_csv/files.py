"""CSV files of PyTorch's pipelines: read as timetables, and written with communication on request."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from lib import Activation, ActivationGrad, RuleError, Trace, Weight, WeightGrad
from lib.schedules import Cell, Timetable
from lib.schedules.cells import Slot

from .pipeline import Pipeline, slots_of
from .words import SAYS

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

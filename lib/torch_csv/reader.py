"""Reads the CSV files of PyTorch's pipelines as timetables."""

import csv
import re

from lib.errors import RuleError
from lib.schedules import Cell, Timetable
from lib.schedules.cells import Slot

from .messages import Transfer, require_messages

CELL = re.compile(r"(\d{1,6})([FIWB])(\d{1,6})")
TRANSFER = re.compile(r"(\d{1,6})(SEND|RECV)_([FB])(\d{1,6})")
WEIGHTS = re.compile(r"\d{1,6}(?:UNSHARD|RESHARD|REDUCE_GRAD\d{0,6})")
TOGETHER = re.compile(r"\(([^()]*)\)OVERLAP_F_B")
BUBBLES = ("", "None")


def read_csv(text: str) -> Timetable:
    """The order of a file, with or without communication. Messages are checked and left out, because they follow from
    the order. Cells that are empty or `None` are bubbles.

    Raises:
        RuleError: naming the row, the column and what is no action; or the actions are not one training step; or the
            messages are not what the cells need.
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
        raise RuleError(f"this file is no CSV: {why}") from None
    found = [
        [action for column, word in enumerate(row, 1) if (action := _action(word.strip(), number, column)) is not None]
        for number, row in enumerate(rows, 1)
    ]
    table = Timetable.of([slot for slot in row if slot and not isinstance(slot, Transfer)] for row in found)
    if any(not slot or isinstance(slot, Transfer) for row in found for slot in row):
        require_messages([[slot for slot in row if slot] for row in found], table)
    return table


def _action(word: str, row: int, column: int) -> Slot | Transfer | None:
    """The cells, or the message; nothing of what gathers weights and scatters gradients; None for a bubble."""
    if word in BUBBLES:
        return None
    if WEIGHTS.fullmatch(word):
        return ()
    if message := TRANSFER.fullmatch(word):
        return Transfer(int(message[1]), message[2] == "SEND", message[3], int(message[4]))
    slot = slot_of(word)
    if slot is None:
        raise RuleError(
            f"row {row}, column {column} has {word[:40]!r}, which is no action of PyTorch's pipelines; a cell is "
            "written as 2F5, with F, I, W or B, and a message as 2SEND_F5"
        )
    return slot


def slot_of(word: str) -> Slot | None:
    """The cells of 2F5 or (2F5;3B4)OVERLAP_F_B; None of anything else."""
    together = TOGETHER.fullmatch(word)
    cells = [CELL.fullmatch(name.strip()) for name in (together[1].split(";") if together else [word])]
    return None if None in cells else tuple(Cell(int(cell[1]), cell[2], int(cell[3])) for cell in cells if cell)

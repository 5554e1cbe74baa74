"""Cells: what a rank of a pipeline computes at a time, what that needs, and the messages between ranks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

OPERATIONS = {"F": "forward", "B": "backward", "I": "the input half of backward", "W": "its weight half"}
"""What a cell computes. B is I and W in one piece (Zero Bubble calls I "B")."""


class Cell(NamedTuple):
    """One microbatch in one stage, written as PyTorch does: `2F5` is the forward of microbatch 5 through stage 2."""

    stage: int
    op: str
    batch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.batch}"


Slot = tuple[Cell, ...]
"""Cells that a rank starts together, nearly always one. Of more, all inputs are received before the first is computed,
and all outputs are sent after the last."""

Rows = Sequence[Sequence[Slot]]
"""For each rank its slots, in order."""


class Message(NamedTuple):
    """What rank `source` makes in one cell, and rank `to` uses in another."""

    source: int
    to: int
    made: Cell
    used: Cell

    @property
    def stream(self) -> int:
        """A number for the activations of each stage, and one for the gradients."""
        return 2 * self.made.stage + (self.made.op != "F")


class Dependencies:
    """What the cells of some rows need, which may be a part of a step with so many `stages`."""

    def __init__(self, rows: Rows, stages: int = 0) -> None:
        self.rank_of = {cell: rank for rank, row in enumerate(rows) for slot in row for cell in slot}
        self._last = stages - 1 if stages else max(cell.stage for cell in self.rank_of)
        self._backward: Mapping[tuple[int, int], Cell] = {
            (cell.stage, cell.batch): cell for cell in self.rank_of if cell.op in "BI"
        }

    def of(self, cell: Cell) -> list[Cell]:
        """The cells whose results it uses."""
        stage, op, batch = cell
        if op == "F":
            return [Cell(stage - 1, "F", batch)] if stage else []
        if op == "W":
            return [Cell(stage, "I", batch)]
        later = [self._backward[stage + 1, batch]] if stage < self._last else []
        return [Cell(stage, "F", batch), *later]

    def received(self, slot: Slot) -> Iterator[Message]:
        """The messages that a slot needs from other ranks."""
        for cell in slot:
            for made in self.of(cell):
                if self.rank_of[made] != self.rank_of[cell]:
                    yield Message(self.rank_of[made], self.rank_of[cell], made, cell)

    def sent(self, slot: Slot) -> Iterator[Message]:
        """The messages that a slot makes for other ranks."""
        for cell in slot:
            used = self._next(cell)
            if used is not None and self.rank_of[used] != self.rank_of[cell]:
                yield Message(self.rank_of[cell], self.rank_of[used], cell, used)

    def _next(self, cell: Cell) -> Cell | None:
        """The cell of the next stage, or in backward of the stage before, that uses this one's result."""
        if cell.op == "F":
            used = Cell(cell.stage + 1, "F", cell.batch)
            return used if used in self.rank_of else None
        return self._backward.get((cell.stage - 1, cell.batch)) if cell.op != "W" else None

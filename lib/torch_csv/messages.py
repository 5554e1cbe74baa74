"""The messages in a file of PyTorch's pipelines: each is sent and received once, in an order that ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from lib.errors import DeadlockError, RuleError
from lib.schedules import Timetable
from lib.schedules import cells as planned
from lib.schedules.cells import Slot

Message = tuple[str, int, int]
"""F (an activation) or B (a gradient), the stage that sends it, and the microbatch."""

WITHOUT = "; or leave out the communication, and PyTorch adds its own"


class Transfer(NamedTuple):
    """A message in a row: sent or received, with the stage of this rank that does it."""

    stage: int
    sends: bool
    kind: str
    batch: int

    def __str__(self) -> str:
        return f"{self.stage}{'SEND' if self.sends else 'RECV'}_{self.kind}{self.batch}"

    @property
    def message(self) -> Message:
        return self.kind, self.stage if self.sends else self.stage - self.step, self.batch

    @property
    def step(self) -> int:
        """From the stage that sends to the stage that receives."""
        return 1 if self.kind == "F" else -1

    @property
    def other(self) -> Transfer:
        """What the other rank does."""
        return Transfer(self.stage + (self.step if self.sends else -self.step), not self.sends, self.kind, self.batch)


Row = Sequence[Slot | Transfer]
"""The cells and messages of a rank, in order."""

Places = Mapping[Transfer, tuple[int, int]]
"""The rank and the index of each."""


def message_text(message: Message) -> str:
    kind, stage, batch = message
    return f"the {'activation' if kind == 'F' else 'gradient'} of microbatch {batch} from stage {stage}"


def require_messages(rows: Sequence[Row], table: Timetable) -> None:
    """Refuses messages with which PyTorch could not run these rows: it posts sends and receives without waiting, a cell
    waits for its messages, and messages between two ranks arrive in the order of sending.
    """
    every = [message for row in table.rows for slot in row for message in table.needs.sent(slot)]
    needed = {("F" if one.made.op == "F" else "B", one.made.stage, one.made.batch): one for one in every}
    places: dict[Transfer, tuple[int, int]] = {}
    for rank, row in enumerate(rows):
        for at, action in enumerate(row):
            if isinstance(action, Transfer):
                _require_needed(rank, action, needed, places)
                places[action] = rank, at
    for message, one in needed.items():
        send = Transfer(one.made.stage, True, message[0], message[2])
        for action in (send, send.other):
            _require_place(action, one, rows, places, needed)
    _require_order(needed, places)
    _require_end(rows, table, needed)


def _require_needed(rank: int, action: Transfer, needed: Mapping[Message, planned.Message], places: Places) -> None:
    found = needed.get(action.message)
    if found is None:
        raise RuleError(
            f"rank {rank} has {action}, and no cell of another rank needs {message_text(action.message)}; leave it "
            f"out{WITHOUT}"
        )
    mine = found.source if action.sends else found.to
    if rank != mine:
        raise RuleError(f"rank {rank} has {action}, but stage {action.stage} is on rank {mine}; put it there{WITHOUT}")
    if action in places:
        raise RuleError(f"rank {rank} has {action} twice; leave out one{WITHOUT}")


def _require_place(
    action: Transfer,
    one: planned.Message,
    rows: Sequence[Row],
    places: Places,
    needed: Mapping[Message, planned.Message],
) -> None:
    """A message is sent after the cell that makes it, and received before the cell that uses it."""
    rank, cell = (one.source, one.made) if action.sends else (one.to, one.used)
    at = next(at for at, slot in enumerate(rows[rank]) if not isinstance(slot, Transfer) and cell in slot)
    if action not in places:
        does = f"send {message_text(action.message)}, which rank {one.to} needs"
        if not action.sends:
            does = f"receive {message_text(action.message)}, which rank {one.source} sends"
        side, there = _gap(action, at, places, needed)
        beside = cell if there == at else rows[rank][there]
        raise RuleError(f"rank {rank} does not {does}; add {action} to row {rank + 1}, {side} {beside}{WITHOUT}")
    if (places[action][1] > at) != action.sends:
        side = "after" if action.sends else "before"
        raise RuleError(f"rank {rank} has {action} on the wrong side of {cell}; put it {side} {cell}{WITHOUT}")


def _gap(action: Transfer, cell: int, places: Places, needed: Mapping[Message, planned.Message]) -> tuple[str, int]:
    """Where a missing message belongs, after or before an index: next to its cell, in the order of the other rank."""

    def mine(theirs: Sequence[Transfer]) -> list[int]:
        return [places[one.other][1] for one in theirs if one.other in places]

    pair = needed[action.message][:2]
    line = [one for one in places if one.sends != action.sends and needed[one.message][:2] == pair]
    line.sort(key=places.__getitem__)
    turn = line.index(action.other) if action.other in places else len(line)
    earlier, later = (mine(line[:turn]), mine(line[turn + 1 :])) if turn < len(line) else ([], [])
    if action.sends:
        return "after", max([cell, *earlier])
    if earlier and max(earlier) < cell:
        return "after", max(earlier)
    return "before", min([cell, *later])


def _require_order(needed: Mapping[Message, planned.Message], places: Places) -> None:
    """PyTorch has no tags: a receive takes the next message of its sender."""
    ordered = sorted(places, key=places.__getitem__)
    for source, to in sorted({(one.source, one.to) for one in needed.values()}):
        between = [action for action in ordered if needed[action.message][:2] == (source, to)]
        sent, received = ([action for action in between if action.sends is sends] for sends in (True, False))
        for first, taken in zip(sent, received, strict=True):
            if first.message != taken.message:
                raise RuleError(
                    f"rank {source} sends {message_text(first.message)} next, but rank {to} receives "
                    f"{message_text(taken.message)} next; PyTorch has no tags, so receive in the order of sending"
                    f"{WITHOUT}"
                )


def _require_end(rows: Sequence[Row], table: Timetable, needed: Mapping[Message, planned.Message]) -> None:
    at = [0] * len(rows)
    arrived: set[planned.Message] = set()

    def missing(rank: int) -> list[planned.Message]:
        action = rows[rank][at[rank]] if at[rank] < len(rows[rank]) else ()
        slot = () if isinstance(action, Transfer) else action
        return [message for message in table.needs.received(slot) if message not in arrived]

    going = True
    while going:
        going = False
        for rank, row in enumerate(rows):
            while at[rank] < len(row) and not missing(rank):
                action = row[at[rank]]
                if isinstance(action, Transfer) and action.sends:
                    arrived.add(needed[action.message])
                at[rank] += 1
                going = True
    waits = [
        f"rank {rank} waits at {one.used} for the result of {one.made}, which rank {one.source} has not sent"
        for rank in range(len(rows))
        for one in missing(rank)
    ]
    if waits:
        raise DeadlockError(f"all wait: {'; '.join(waits)}; send each result right after its cell{WITHOUT}")

"""Writes a pipeline as PyTorch loads it: the cells of each rank, and on request its communication."""

from collections import Counter
from collections.abc import Iterator, Sequence

from lib.errors import RuleError
from lib.schedules import Cell, Timetable
from lib.schedules.cells import Slot
from lib.trace.ops import Trace
from lib.values.kinds import Activation, ActivationGrad, Weight, WeightGrad

from .messages import WITHOUT, Message, message_text, messages_of
from .pipeline import Pipeline, slots_of

Action = tuple[int, int, int, str]
"""An action of a rank, after what sorts it: the index of its operation, then two numbers within that operation."""


def write_csv(trace: Trace, communication: bool = False) -> str:
    """A correct trace as CSV: `compute_only` as PyTorch calls it, or with communication `compute_comms`.

    Raises:
        RuleError: the schedule cannot be said so; the text says why.
    """
    found = Pipeline.of(trace)
    if not communication:
        return write_table(found.table)
    return "".join(f"{','.join(row)}\n" for row in _Communication(found).rows())


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
    """The actions of the ranks of one replica. PyTorch runs them unchecked, so they are checked here."""

    def __init__(self, found: Pipeline) -> None:
        self.table, self.stage_of = found.table, found.stage_of
        self.needs, self.replica = found.table.needs, found.replicas[0]
        self.place = {work.rank: place for place, work in enumerate(self.replica.works)}
        self.sent: dict[tuple[int, int], list[Message]] = {}
        """By sender and receiver, in the order of sending."""
        self.received: dict[Message, int] = {}
        """With the index of the operation that receives it."""

    def rows(self) -> list[list[str]]:
        rows = [list(self.actions(place)) for place in range(len(self.replica.works))]
        self.require_all_messages()
        for (_, to), messages in self.sent.items():
            rows[to] += self.receives(messages)
        return [[text for *_, text in sorted(row)] for row in rows]

    def receives(self, messages: Sequence[Message]) -> Iterator[Action]:
        """PyTorch has no tags: messages are received in the order of sending. A receive is only posted where its action
        is, so it may come before that of a message that was sent later."""
        at = len(self.table.cells) << 20
        for turn, message in reversed([*enumerate(messages)]):
            at = min(at, self.received[message])
            kind, source, batch = message
            yield at, 0, turn, f"{source + (1 if kind == 'F' else -1)}RECV_{kind}{batch}"

    def actions(self, place: int) -> Iterator[Action]:
        """All that a rank does besides receiving."""
        work, cells = self.replica.works[place], self.replica.cells[place]
        for slot in slots_of(work, cells):
            yield cells[slot[0]][-1], 1, int(slot[0].op == "W"), slot_text(slot)
        for at, op in enumerate(work.ops):
            for number in op.inputs if op.name == "pass_to" else ():
                message = kind, source, batch = self.message(place, op.args[0], work.state.values[number], sends=True)
                to = self.needs.rank_of[Cell(source + (1 if kind == "F" else -1), "F", 0)]
                self.sent.setdefault((place, to), []).append(message)
                yield at, 2, 0, f"{source}SEND_{kind}{batch}"
            for number in op.outputs if op.name == "receive" else ():
                message = self.message(place, op.args[0], work.state.values[number], sends=False)
                if message in self.received:
                    raise RuleError(f"{message_text(message)} is received twice{WITHOUT}")
                self.received[message] = at
        yield from self.weights(place)

    def message(self, place: int, other: int | None, value: object, sends: bool) -> Message:
        """What a value is that is sent to, or received from, another rank."""
        rank, words = self.replica.works[place].rank, "sends" if sends else "receives"
        edge = len(self.stage_of)
        if isinstance(value, Activation) and 0 < value.layer < edge:
            kind, source, to = "F", self.stage_of[value.layer - 1], self.stage_of[value.layer]
        elif isinstance(value, ActivationGrad) and 0 <= value.layer < edge - 1:
            kind, source, to = "B", self.stage_of[value.layer + 1], self.stage_of[value.layer]
        else:
            raise RuleError(f"rank {rank} {words} the {value}, which PyTorch does not send between stages{WITHOUT}")
        ends = [self.needs.rank_of[Cell(stage, "F", 0)] for stage in (source, to)]
        mine, theirs = ends if sends else reversed(ends)
        there = theirs if other is None else self.place.get(other)
        if source == to or (mine, theirs) != (place, there):
            raise RuleError(
                f"rank {rank} {words} the {value}, which goes from stage {source} to stage {to}; PyTorch sends it "
                f"directly between their ranks{WITHOUT}"
            )
        (batch,) = value.batches
        return kind, source, self.replica.batches[batch]

    def require_all_messages(self) -> None:
        """Each message once, as the cells need it."""
        wanted = Counter([*messages_of(self.table)])
        sent = Counter(message for messages in self.sent.values() for message in messages)
        for words, has in (("sent", sent), ("received", Counter(list(self.received)))):
            for message in sorted(wanted.keys() | has.keys()):
                if has[message] != wanted[message]:
                    raise RuleError(
                        f"{message_text(message)} is {words} {has[message]} times, and needed once{WITHOUT}"
                    )

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
                    mine = gathered.setdefault(stage, [])
                    mine.append(number)
                    stage_of_value[number] = stage, (len(mine) - 1) // layers[stage]
                    if len(mine) % layers[stage] == 0:
                        yield at, 0, -1, f"{stage}UNSHARD"
                if op.name == "scatterreduce" and isinstance(value, WeightGrad):
                    scattered[stage] = scattered.get(stage, 0) + 1
                    if scattered[stage] % layers[stage] == 0:
                        yield at, 3, 1, f"{stage}REDUCE_GRAD"
        for (stage, _), at in last_use.items():
            yield at, 3, 0, f"{stage}RESHARD"

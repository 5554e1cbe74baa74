"""Re-executes a trace from the rules alone, trusting nothing it can recompute: values, clocks, meetings, messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

from lib import rules
from lib.collective_rules import COLLECTIVES, Group, contribute
from lib.costs import CLASSIC, Costs, elements_sent
from lib.deadlock_text import WaitingRank, deadlock_text
from lib.errors import DeadlockError, PuzzleError, RuleError, TraceError
from lib.meetings import agree, settle
from lib.mesh import Mesh
from lib.setting import Game
from lib.trace import FORMS, FREE, NO_BATCHES, TIMED, Op, Trace, place_text, shortest
from lib.trace_walk import Cursor, Walk
from lib.values.algebra import set_text
from lib.values.base import Value, copy_of
from lib.values.kinds import HOLDS, Weight

Place = tuple[int, int]
"""An operation: its rank, and its index there."""


@dataclass(slots=True, eq=False)
class RankState(Cursor):
    """One rank of the trace, as far as it has been executed again."""

    costs: Costs = CLASSIC
    clock: int = 0
    values: dict[int, Value] = field(default_factory=dict)
    stored: dict[tuple[str, object], int] = field(default_factory=dict)
    """By name of a dictionary and key in it: the number of the value there."""
    final: list[Weight] = field(default_factory=list)
    given: set[int] = field(default_factory=set)
    """Numbers of the values that were made by hand or by a model of another Dist."""
    read: dict[int, int] = field(default_factory=dict)
    """By index of a pass_to: the tick at which its message is received."""
    held_up: dict[int, Place] = field(default_factory=dict)
    """By index of an event that had to wait: the rank, and the index there, of what it waited for."""
    events: list[int] = field(default_factory=list)
    """Indices of the timed operations."""
    causes: list[Place | None] = field(default_factory=list)
    """For each event, in the same order: the event that ended when it could start, on this rank or on another."""
    cause: Place | None = None
    """The event that set the clock."""
    messages: int = 0
    elements: int = 0
    """Elements sent, in messages and collectives (ring-optimal)."""

    @property
    def done(self) -> Sequence[Op]:
        """The operations that have been executed."""
        return self.ops[: self.at]

    def used(self, op: Op) -> list[Value]:
        """The values that one of the executed operations used."""
        return [self.values[number] for number in op.used]

    def place(self, call: str) -> str:
        """The place of a refusal on this rank, now."""
        return place_text(self.rank, self.costs.text(self.clock), call)


class Arrival(NamedTuple):
    """A rank's call of a collective, with the clock and the value that were recomputed."""

    rank: int
    clock: int
    line: int
    name: str
    group: Group | None
    values: tuple[Value, ...]


Met = tuple[tuple[Value, ...], tuple[Value, ...], int, Place, Place | None]
"""One rank's share of a collective: what it brought and gets, the start, the call that set the start, and the event
that this call came after."""

_new = tuple.__new__  # what Arrival(...) does, in half of its time

MALFORMED = (TypeError, ValueError, AttributeError)
"""The exceptions that a record with columns of the wrong types can cause."""


class Retrace(Walk[RankState]):
    """The run of a trace. `made_up` lists the values that no operation made; `strict` refuses them."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.ranks = [RankState(rank, ops, costs=trace.costs) for rank, ops in enumerate(trace.ranks)]
        super().__init__(self.ranks)
        self.trace = trace
        self.size = trace.size
        self.game = Game.of(trace.size, trace.setting)
        self.costs = trace.costs
        self.mesh = Mesh(trace.setting.mesh, trace.size.ranks)
        self.strict = strict
        self.made_up: list[str] = []

    def run(self) -> None:
        """Executes every rank to its end.

        Raises:
            PuzzleError: the first thing that is against the rules, with its place.
        """
        if len(self.ranks) != self.size.ranks:
            raise TraceError(f"the trace is of {self.size.ranks} ranks and holds {len(self.ranks)}")
        if stuck := self.walk():
            self._refuse_deadlock(stuck)
        self._refuse_unread()
        rules.complete(self.game, [weight for rank in self.ranks for weight in rank.final])

    def go_on(self, cursor: RankState) -> None:
        """Executes one rank's operations until it ends or has to wait; a refusal gets its place."""
        ops = cursor.ops
        try:
            while cursor.at < len(ops):
                op = ops[cursor.at]
                name = op.name
                if name == "store" or name == "delete":  # most of a trace, so without `visit` in between
                    self._keep(cursor, op)
                    cursor.at += 1
                elif not self.visit(cursor, op):
                    return
        except (PuzzleError, *MALFORMED) as why:
            raise _placed(why, cursor) from None

    def visit(self, cursor: RankState, op: Op) -> bool:
        name, used = op.name, self._used(cursor, op)
        if name in rules.LOCAL_RULES:
            self._compute(cursor, op, used)
        elif name == "given":
            self._take_over(cursor, op)
        elif name in COLLECTIVES:
            self.costs.require_priced(name)
            contribute(name, used[0])
            return self.join(cursor, self._group(cursor, op, used))
        elif name == "pass_to":
            rules.partner(self.game, cursor.rank, op.args[0])
            return self.send(cursor, op)
        else:
            return self.receive(cursor, op)
        cursor.at += 1
        return True

    def _used(self, rank: RankState, op: Op) -> list[Value]:
        """The values that an operation uses, if its record holds what FORMS asks of it and this rank has made them."""
        form = FORMS.get(op.name)
        if form is None:
            raise TraceError(f"there is no operation {op.name!r}")
        if (
            (op.layer is None) is form.layer
            or not (type(op.used) is type(op.args) is tuple)
            or (form.uses is not None and len(op.used) != form.uses)
            or not form.fits(op.args)
        ):
            raise TraceError(f"a record of {op.name} holds {form.describe()}; this one is {op}")
        try:
            used = [rank.values[number] for number in op.used]
        except KeyError as missing:
            raise TraceError(f"it uses value {missing}, which this rank has not made") from None
        if rank.given and self.strict:
            _refuse_given(rank, op)
        return used

    # --- What a rank does on its own ---

    def _keep(self, rank: RankState, op: Op) -> None:
        """Stores or deletes: most of a trace, so this looks at each column once."""
        name, start, end, layer, batches, used, made, args, _ = op
        takes_time = start != rank.clock or end != start
        if takes_time or layer is not None or batches or made != () or len(args) != 2 or type(used) is not tuple:
            raise TraceError(f"to {name} takes no time, and makes nothing; this record is {op}")
        if name == "store":
            (number,) = used
            value = rank.values.get(number)
            if value is None:
                raise TraceError(f"it stores value {number}, which this rank has not made")
            if HOLDS.get(args[0]) is not type(value):
                raise RuleError(f"{args[0]} does not hold {value.kind}")
            if rank.given and self.strict:
                _refuse_given(rank, op)
            rank.stored[args] = number
        elif used != () or rank.stored.pop(args, None) is None:
            raise RuleError("nothing is stored there")

    def _compute(self, rank: RankState, op: Op, used: list[Value]) -> None:
        """Executes an operation on the rank's own values."""
        name = op.name
        made = rules.LOCAL_RULES[name](self.game, op, used)
        batches, items = NO_BATCHES, 1
        if name in rules.BATCHED:
            batches = made[0].batches  # type: ignore[attr-defined]  # what BATCHED means
            items = len(batches)
        ticks = 0 if name in FREE else self.costs.duration(name, items)
        _confirm(rank, op, made, rank.clock, ticks, batches)
        if name == "fake_grad" and batches:
            self._note_made_up_gradient(set_text(batches))
        elif name == "set_final_weight":
            rank.final.append(used[0])  # type: ignore[arg-type]  # the rule has checked that it is a weight

    def _note_made_up_gradient(self, batches: str) -> None:
        if self.strict:
            raise RuleError(
                f"nobody computed the gradient of batches {batches}; go forward and backward with "
                "them (a puzzle allows fake_grad only without batches, as a zero)"
            )
        self.made_up.append(f"a gradient from fake_grad, of batches {batches} that nobody computed")

    def _take_over(self, rank: RankState, op: Op) -> None:
        """Accepts a value that no operation of the run made."""
        (value,) = op.args
        self.made_up.append(f"the {value}, made by hand or by a model of another Dist")
        rank.given.add(len(rank.values))
        _confirm(rank, op, (copy_of(value),), rank.clock, 0)

    # --- What ranks do together ---

    def meet(self, cursors: Sequence[RankState]) -> list[Met]:
        arrivals = list(map(_arrival, cursors))
        results, start = settle(arrivals)
        last = next(rank for rank in cursors if rank.clock == start)
        setter, before = (last.rank, last.at), last.cause
        return [(call.values, result, start, setter, before) for call, result in zip(arrivals, results)]

    def _group(self, rank: RankState, op: Op, used: list[Value]) -> Group | None:
        """The group of a collective, if its record is as a run writes it."""
        if op.layer != used[0].layer:
            raise TraceError(f"it is of layer {used[0].layer}, that of the {used[0]}, not {op.layer}")
        if not op.args:
            return None
        group: Group | None = op.args[0]
        label = op.args[1] if len(op.args) > 1 else None
        if op.args != shortest(group, None if label == op.layer else label):
            raise TraceError(f"a record names a group and a label only where they are not plain; this one is {op}")
        if label is not None and type(label) is not int:
            raise TraceError(f"a label is a whole number; this record is {op}")
        if group is not None:
            self.mesh.require()
            if type(group) is not tuple or list(group) != sorted({*group}) or not {*group} < {*range(self.size.ranks)}:
                raise TraceError(f"a group is some of the ranks, ascending; this record is {op}")
            self.mesh.require_member(rank.rank, group)
        return group

    def met(self, cursor: RankState, op: Op, result: Met) -> None:
        brought, made, start, setter, before = result
        if cursor.clock < start:
            cursor.held_up[cursor.at] = setter
            cursor.cause = before
        for value in brought:
            cursor.elements += elements_sent(op.name, value.memory(self.costs), self.size.ranks)
        try:
            _confirm(cursor, op, made, start, self.costs.duration(op.name))
        except (PuzzleError, *MALFORMED) as why:
            raise _placed(why, cursor) from None

    def sent(self, cursor: RankState, op: Op) -> None:
        used = cursor.used(op)
        cursor.messages += 1
        elements = sum(value.memory(self.costs) for value in used)
        cursor.elements += elements_sent("pass_to", elements, self.size.ranks)
        _confirm(cursor, op, (), cursor.clock, self.costs.duration("pass_to", max(1, len(used))))

    def received(self, cursor: RankState, op: Op, sender: RankState, sent_at: int) -> None:
        message = sender.ops[sent_at]
        if message.end > cursor.clock:
            cursor.held_up[cursor.at] = cursor.cause = (sender.rank, sent_at)
        start = sender.read[sent_at] = max(cursor.clock, message.end)
        values = sender.used(message)
        _confirm(cursor, op, values, start, self.costs.duration("receive", max(1, len(values))))

    # --- The end ---

    def _refuse_unread(self) -> None:
        for rank in self.ranks:
            for source, sent_at in self.mailboxes.unread(rank.rank):
                op = self.ranks[source].ops[sent_at]
                raise RuleError(
                    f"this message was never received; let rank {rank.rank} receive it, or do not send it",
                    place_text(source, self.costs.text(op.start), op.call()),
                    op.line,
                )

    def _refuse_deadlock(self, stuck: list[RankState]) -> NoReturn:
        first = stuck[0]
        place, line = first.place(first.op.call()), first.op.line
        try:
            for meeting in self.meetings.open():
                agree([_arrival(rank) for _, rank in sorted(meeting.present().items())])
        except PuzzleError as why:
            raise why.at(place, line) from None
        waits = [self._waiting(rank) for rank in stuck]
        ended = {rank.rank: "has returned" for rank in self.ranks if rank.ended}
        raise DeadlockError(deadlock_text(waits, ended), place, line)

    def _waiting(self, rank: RankState) -> WaitingRank:
        op = rank.op
        kind = {"pass_to": "post", "receive": "receive"}.get(op.name, "collective")
        of = self.meetings.of(None).missing() if kind == "collective" else op.args
        return WaitingRank(rank.rank, op.call(), op.line, kind, of)


def _placed(why: Exception, rank: RankState) -> PuzzleError:
    """The refusal of a rank's next operation, with its place unless it has one already."""
    if not isinstance(why, PuzzleError):
        problem = f"this record makes no sense ({why}): {rank.op}"
        return TraceError(problem, rank.place(f"operation {rank.at}"))
    return why if why.place else why.at(rank.place(rank.op.call()), rank.op.line)


def _arrival(rank: RankState) -> Arrival:
    op = rank.ops[rank.at]
    group = op.args[0] if op.args else None
    return _new(Arrival, (rank.rank, rank.clock, op.line, op.name, group, (rank.values[op.used[0]],)))


def _refuse_given(rank: RankState, op: Op) -> None:
    for number in rank.given.intersection(op.used):
        raise RuleError(
            f"the {rank.values[number]} was made by hand or by a model of another Dist; "
            "in a puzzle, get it from this model's own operations"
        )


def _confirm(
    rank: RankState,
    op: Op,
    made: Sequence[Value],
    start: int,
    ticks: int,
    batches: frozenset[int] = NO_BATCHES,
) -> None:
    """Checks the derived columns of a record, and takes over the values and the clock that they confirm."""
    if op.start != start or op.end != start + ticks:
        raise TraceError(f"it takes place from tick {start} to {start + ticks}, not {op.start} to {op.end}")
    if op.batches is not batches and op.batches != batches:
        raise TraceError(f"it is of batches {sorted(batches)}, not {sorted(op.batches)}")
    if made or op.made != ():
        first = len(rank.values)
        if op.made != tuple(range(first, first + len(made))):
            raise TraceError(f"it makes {len(made)} values from number {first} on, not {list(op.made)}")
        for number, value in zip(op.made, made):
            rank.values[number] = value
    if op.name in TIMED:
        rank.events.append(rank.at)
        rank.causes.append(rank.cause)
        rank.cause = (rank.rank, rank.at)
        rank.clock = op.end

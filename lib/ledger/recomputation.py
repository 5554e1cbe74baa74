"""Re-executes a trace from the rules alone: values, clocks, meetings and messages. Nothing in a record is believed.

Every column that can be derived is derived again and compared. Reading the trace and checking only its results would be
faster, but a forged record in between could not be found. What a rank stores concerns no other rank and is most of a
trace, so it is followed in one go at the end; only if that finds a fault is everything executed again in order.
"""

from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NoReturn

from lib.errors import DeadlockError, PuzzleError, RuleError, Sentences, TraceError
from lib.ledger import collectives, operations, updates
from lib.ledger.algebra import counted, named
from lib.ledger.collectives import COLLECTIVES, REQUESTING, ROOT_OF, SUMMING, Group
from lib.ledger.costs import CLASSIC, ON_TIER, PAIR, Costs
from lib.ledger.deadlocks import WaitingRank, cycle_of, deadlock_text
from lib.ledger.lanes import LANES, Cursor, Walk, overlapped
from lib.ledger.layers import WHOLE
from lib.ledger.lifetimes import Liveness
from lib.ledger.meetings import Call, Mesh, OpIndex, in_group, message_ticks
from lib.ledger.operations import LOCAL_RULES, PER_BATCH, batches_of, ticks
from lib.ledger.setting import Game
from lib.ledger.trace import (
    FORMS,
    FREE,
    NO_BATCHES,
    TIMED,
    Op,
    Trace,
    group_of,
    halves,
    no_collection,
    place_text,
    shortest,
)
from lib.ledger.updates import USES_A_WEIGHT, require_room
from lib.ledger.values import HOLDS, Activation, Parked, Stepped, Value, Weight, WeightGrad

USING_WEIGHTS = {*USES_A_WEIGHT, "tier_update", PAIR}

MALFORMED = (TypeError, ValueError, AttributeError)
"""The exceptions that a record with columns of the wrong types can cause."""


@dataclass(slots=True, eq=False)
class RankState(Cursor):
    """One rank of the trace, as far as it has been re-executed."""

    costs: Costs = CLASSIC
    strict: bool = False
    """Refuses values that no operation has made."""
    values: dict[int, Value] = field(default_factory=dict)
    liveness: Liveness = field(init=False)
    """Stored values, and how long values are needed; it is advanced only when needed."""
    final: list[Weight] = field(default_factory=list)
    copies: list[Weight] = field(default_factory=list)
    """The weights that `set_final_copy` has declared."""
    outputs: list[Activation] = field(default_factory=list)
    handmade: set[int] = field(default_factory=set)
    """Numbers of values that were made by hand or by a model of another Dist."""
    read: dict[int, int] = field(default_factory=dict)
    """By index of a pass_to: the tick at which its message is received."""
    waited_for: dict[int, OpIndex] = field(default_factory=dict)
    """By index of an event that had to wait: the rank and index of the operation for which it waited."""
    causes: dict[int, OpIndex | None] = field(default_factory=dict)
    """By index of an event: the event whose end determined its start, if not the preceding computation."""
    cause: OpIndex | None = None
    """The event that set the clock, if not the preceding computation."""
    computed: int = -1
    """The index of the last event that kept this rank busy."""

    def __post_init__(self) -> None:
        self.liveness = Liveness(self.ops, self.values, {*overlapped(self.costs), *(("given",) if self.strict else ())})

    @property
    def done(self) -> Sequence[Op]:
        """The operations that have been executed."""
        return self.ops[: self.at]

    def used(self, op: Op) -> list[Value]:
        return [self.values[number] for number in op.inputs]

    def all(self, names: Set[str]) -> list[Op]:
        """The executed operations with one of the names, in their order."""
        ops, named = self.ops, self.named
        places = [named[name] for name in names & named.keys()]
        return [ops[i] for i in (places[0] if len(places) == 1 else sorted(chain(*places)))]

    @property
    def events(self) -> list[int]:
        """Indices of the timed operations up to which storage has been followed."""
        return self.liveness.events

    @property
    def named(self) -> dict[str, list[int]]:
        """All operations by name, except storing and deleting."""
        return self.liveness.named

    def parked(self) -> list[Parked]:
        """The values in `model.parked`, each once."""
        self.liveness.advance(self.at)
        numbers = {number for (where, _), number in self.liveness.kept.items() if where == "parked"}
        return [value for value in map(self.values.__getitem__, sorted(numbers)) if isinstance(value, Parked)]

    def last_event(self) -> OpIndex | None:
        """The event that set the clock."""
        if self.cause is not None or self.computed < 0:
            return self.cause
        return self.rank, self.computed

    def place(self, call: str) -> str:
        """The current place of a refusal on this rank."""
        return place_text(self.rank, self.costs.text(self.clock), call)


def placed(why: Exception, rank: RankState) -> PuzzleError:
    """The refusal of a rank's next operation, with its place added if it has none."""
    if not isinstance(why, PuzzleError):
        problem = SAYS("senseless record", why=why, record=rank.op)
        return TraceError(problem, rank.place(f"operation {rank.at}"))
    return why if why.place else why.at(rank.place(rank.op.call()), rank.op.line)


def confirm(
    rank: RankState, op: Op, values: Sequence[Value], start: int, ticks: int, batches: frozenset[int] = NO_BATCHES
) -> None:
    """Checks the derived columns of a record, and adopts the values and the clock that they confirm."""
    name, its_batches, numbers, end = op.name, op.batches, op.outputs, start + ticks
    if op.start != start or op.end != end:
        raise TraceError(SAYS("other ticks", start=start, end=end, op_start=op.start, op_end=op.end))
    if its_batches is not batches and its_batches != batches:
        raise TraceError(SAYS("other batches", batches=sorted(batches), its_batches=sorted(its_batches)))
    if values or numbers != ():
        first = len(rank.values)
        expected = (first,) if len(values) == 1 else tuple(range(first, first + len(values)))
        if numbers != expected:
            raise TraceError(SAYS("other values", values=len(values), first=first, numbers=list(numbers)))
        for number, value in zip(expected, values):
            rank.values[number] = value
    at = rank.at
    if name in TIMED:
        rank.computed = at
        if rank.cause is not None:
            rank.causes[at], rank.cause = rank.cause, None
        rank.clock = end


def uses_of_weights(ranks: Iterable[RankState]) -> Iterator[tuple[str, list[Value]]]:
    """Each operation that computes with a weight or updates it, on a device or a tier, with the values it uses."""
    for rank in ranks:
        for op in rank.done:
            for part in halves(op) if op.name in USING_WEIGHTS else ():
                yield part.name.removeprefix("tier_"), [unparked(value) for value in rank.used(part)]


def unparked(value: Value) -> Value:
    return value.value if isinstance(value, Parked) else value


# --- Checks of records: storage, groups and labels, tags ---


def follow_stored(rank: RankState) -> None:
    """Follows a rank's storage through its next operation, which stores or deletes a value."""
    rank.liveness.advance(rank.at)
    try:
        rank.liveness.advance(rank.at + 1)
    except TraceError:
        _explain(rank, rank.op)
        raise


def _explain(rank: RankState, op: Op) -> None:
    timeless = op.start == rank.clock == op.end and op.layer is None and op.batches == NO_BATCHES
    if not timeless or op.outputs != () or len(op.args) != 2 or type(op.inputs) is not tuple:
        raise TraceError(SAYS("takes no time", name=op.name, op=op))
    if op.name == "delete":
        raise RuleError(SAYS("nothing stored"))
    (number,), where = op.inputs, op.args[0]
    value = rank.values.get(number)
    if value is None:
        raise TraceError(SAYS("stored value not made", number=number))
    if HOLDS.get(where) is not type(value):
        raise RuleError(SAYS("wrong dictionary", dictionary=where, kind=value.kind))
    refuse_pending(rank, op.inputs)
    refuse_handmade(rank, op)


def refuse_pending(rank: RankState, numbers: Iterable[int]) -> None:
    """Refuses the result of a call that has not been awaited."""
    if pending := rank.pending.keys() & {*numbers}:
        raise RuleError(SAYS("still pending", value=rank.values[min(pending)]))


def refuse_handmade(rank: RankState, op: Op) -> None:
    """Refuses values that no operation has made."""
    for number in rank.handmade.intersection(op.inputs):
        raise RuleError(SAYS("made by hand", value=rank.values[number]))


def require_group(mesh: Mesh, rank: int, op: Op, used: Sequence[Value]) -> Group | None:
    """The group of a collective; refuses a record that no run writes."""
    if used and op.layer != used[0].layer:
        raise TraceError(SAYS("other layer", layer=used[0].layer, value=used[0], op_layer=op.layer))
    if op.name in ROOT_OF and (len(op.args) < 3 or type(op.args[2]) is not int):
        raise TraceError(SAYS("no root", name=op.name, op=op))
    if not op.args:
        return None
    group, label = group_of(op), op.args[1] if len(op.args) > 1 else None
    layers, root = tuple([value.layer for value in used]), collectives.root_in(op.name, op.args)
    if op.args != shortest(group, None if label in (layers, op.layer) and len(op.args) > 1 else label, root):
        raise TraceError(SAYS("default recorded", op=op))
    labels = label if type(label) is tuple else (0 if label is None else label,) * len(used)
    if [type(number) for number in labels] != [int] * len(used) or not (used or label is None):
        raise TraceError(SAYS("no labels", op=op))
    if group is not None:
        mesh.require()
        if not mesh.recorded(group):
            raise TraceError(SAYS("no group", op=op))
        mesh.require_member(rank, group)
    if root is not None:
        collectives.require_root(op.name, root, rank, group or range(mesh.ranks), bool(used))
    return group


def require_tag(game: Game, op: Op) -> None:
    """Refuses a message whose tag is impossible."""
    if len(op.args) > 1 and (type(op.args[1]) is not int or not operations.tag(game, op.args[1])):
        raise TraceError(SAYS("default recorded", op=op))


# --- The re-execution ---

_SHAPES = {name: (not form.layer, form.inputs, len(form.args)) for name, form in FORMS.items()}
"""The form of a record without optional columns: whether it has no layer, and its numbers of values and arguments."""


class Recomputation(Walk[RankState]):
    """The re-execution of a trace. `made_up` lists values that no operation has made; `strict` refuses them."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.trace = trace
        self.size = trace.size
        self.game = Game.of(trace.size, trace.setting)
        self.strict = strict
        self.mesh = Mesh((), trace.size.ranks)  # the trace's mesh, once it is checked when it is run
        self._prices = {**self.game.prices, **dict.fromkeys(FREE, 0)}
        """Ticks per batch of operations that cost the same everywhere."""
        self._with_others = frozenset({"await", "receive", "pass_to", *COLLECTIVES, *overlapped(trace.costs)})
        self._begin(in_order=False)

    def _begin(self, in_order: bool) -> None:
        self._in_order = in_order
        """Storing and deleting are checked in program order, not at the end."""
        costs, strict = self.trace.costs, self.strict
        self.ranks = [RankState(rank, ops, costs=costs, strict=strict) for rank, ops in enumerate(self.trace.ranks)]
        super().__init__(self.game, self.ranks)
        self.made_up: list[str] = []

    def run(self) -> None:
        """Executes every rank to its end.

        What a rank stores concerns no other rank and is most of a trace, so each rank's storage is followed in one go,
        after all ranks have come as far as they can. If storage is wrong, another violation may come first. To find the
        first one, everything is executed again, in order.
        """
        try:
            self._execute()
        except PuzzleError:
            if self._follow_storage():
                raise
        else:
            if self._follow_storage():
                return
        self._begin(in_order=True)
        try:
            self._execute()
        finally:
            followed = self._follow_storage()
        if not followed:
            raise TraceError(SAYS("values not numbered"))

    def _follow_storage(self) -> bool:
        """Follows the storage of every rank so far; False if it differs from what a run writes."""
        try:
            for rank in self.ranks:
                rank.liveness.advance(rank.at)
        except (TraceError, LookupError, *MALFORMED):
            return False
        return True

    def _execute(self) -> None:
        if len(self.ranks) != self.game.ranks:
            raise TraceError(SAYS("ranks missing", ranks=counted(self.game.ranks, "rank"), held=len(self.ranks)))
        self.mesh = Mesh(self.trace.setting.mesh, self.game.ranks)
        if stuck := self.walk():
            self._refuse_deadlock(stuck)
        self._refuse_leftovers()
        if self.game.task == "infer":
            updates.complete_outputs(self.game, [output for rank in self.ranks for output in rank.outputs])
        else:
            final = [weight for rank in self.ranks for weight in rank.final]
            updates.complete(self.game, final)
            if self.game.task == "outer":
                updates.complete_copies(self.game, final, [copy for rank in self.ranks for copy in rank.copies])
                updates.require_one_weight(uses_of_weights(self.ranks))

    def advance(self, cursor: RankState) -> None:
        """Executes one rank's operations until it ends or has to wait; a refusal gets its place.

        Storing and deleting are skipped unless they are checked in order.
        """
        ops, at, past, with_others = cursor.ops, cursor.at, len(cursor.ops), self._with_others
        try:
            while at < past:
                name = ops[at].name
                if name == "store" or name == "delete":
                    if self._in_order:
                        cursor.at = at
                        follow_stored(cursor)
                    at += 1
                    continue
                cursor.at = at
                if name not in with_others:
                    self.on_local(cursor, ops[at])
                elif not self.visit(cursor, ops[at]):
                    return
                at += 1
            cursor.at = at
        except (PuzzleError, *MALFORMED) as why:
            raise placed(why, cursor) from None

    def on_call(self, cursor: RankState, op: Op) -> Call:
        """Checks a call that meets other ranks, or runs beside them. Returns it."""
        used = self._used(cursor, op)
        self.costs.require_priced(op.name)
        for pending in map(cursor.pending.get, op.inputs if cursor.pending else ()):
            if pending is not None:
                collectives.refuse_broadcast(pending.name, pending)
        group = None
        if op.name == "pass_to":
            operations.partner(self.game, cursor.rank, op.args[0])
            operations.message(used)
            require_tag(self.game, op)
        elif op.name in ON_TIER:
            if cursor.pending.keys().isdisjoint(op.inputs):
                require_room(self.costs, cursor.parked(), LOCAL_RULES[op.name](self.game, op, used))
        else:
            for value in used:
                collectives.require_contribution(self.game, op.name, value)
            if op.args or not used or op.layer != used[0].layer:
                group = require_group(self.mesh, cursor.rank, op, used)
        return (self.overlapped if self.on_lanes else self.call)(cursor, op, group, used)

    def overlapped(self, rank: RankState, op: Op, group: Group | None, used: list[Value]) -> Call:
        """The call in a record; its times are checked when they are known."""
        if op.name == "pass_to":
            refuse_pending(rank, op.inputs)
        alike = used[1:3] if op.name == "tier_update" else used
        first, root = len(rank.values), collectives.root_in(op.name, op.args)
        count = 0 if op.name == "pass_to" else collectives.results_of(op.name, len(alike), rank.rank, root)
        numbers = (first,) if count == 1 else tuple(range(first, first + count))
        if op.outputs != numbers or op.batches != collectives.requested_batches(self.game, op.name, op.batches):
            raise TraceError(SAYS("other message", count=count, first=first, op=op))
        call = self.call(rank, op, group, used)
        if count and not alike:  # stands in for a value from another rank; `refuse_broadcast` keeps it from other calls
            alike = [WeightGrad.made(op.layer, self.game.layers, NO_BATCHES, self.game.batches, *WHOLE)]
        rank.values.update(zip(numbers, alike))  # until it ends, what it uses stands in for what it makes
        return call

    def awaited(self, cursor: RankState, op: Op) -> Call:
        if not self.on_lanes:
            raise TraceError(SAYS("nothing pending", costs=self.costs.name, op=op))
        (at,) = op.args
        call = cursor.calls.get(at)
        if call is None:
            raise TraceError(SAYS("not pending", operation=at))
        return call

    def on_await(self, cursor: RankState, op: Op, call: Call) -> None:
        after = max(cursor.clock, call.end)
        if op[1:-2] != (cursor.clock, after, None, NO_BATCHES, call.op.inputs, ()):
            raise TraceError(
                SAYS("other end", start=cursor.clock, end=after, inputs=[*call.op.inputs], call=call.op.call(), op=op)
            )
        if after > cursor.clock:
            cursor.clock = after
            cursor.cause = call.place

    def receive(self, cursor: RankState, op: Op) -> bool:
        self._used(cursor, op)
        require_tag(self.game, op)
        return super().receive(cursor, op)

    def _used(self, rank: RankState, op: Op) -> list[Value]:
        """The values that an operation uses. Its record must have the form that FORMS requires, and this rank must have
        made them."""
        name, numbers, args = op.name, op.inputs, op.args
        if not type(numbers) is type(args) is tuple or _SHAPES.get(name) != (op.layer is None, len(numbers), len(args)):
            self._require_form(op)
        try:
            used = [*map(rank.values.__getitem__, numbers)]
        except KeyError as missing:
            raise TraceError(SAYS("value not made", number=missing)) from None
        if rank.pending and not rank.pending.keys().isdisjoint(numbers) and name not in LANES:
            refuse_pending(rank, numbers)
        if rank.handmade and self.strict:
            refuse_handmade(rank, op)
        return used

    def _require_form(self, op: Op) -> None:
        """Refuses a record that does not have the form that FORMS requires."""
        form = FORMS.get(op.name)
        if form is None:
            raise TraceError(SAYS("no operation", name=op.name))
        fits = type(op.inputs) is type(op.args) is tuple and form.takes(len(op.inputs), self.costs.overlap)
        if not fits or (op.layer is None) is form.layer or not form.fits(op.args):
            raise TraceError(SAYS("other record", name=op.name, form=form.describe(), op=op))

    # --- What a rank does on its own ---

    def on_local(self, rank: RankState, op: Op) -> None:
        name, used = op.name, self._used(rank, op)
        if name == "given":  # a value that no operation of the run has made
            (value,) = op.args
            self.made_up.append(f"the {value}, made by hand or by a model of another Dist")
            rank.handmade.add(len(rank.values))
            return confirm(rank, op, (value.copied(),), rank.clock, 0)
        outputs = LOCAL_RULES[name](self.game, op, used)
        if outputs and type(outputs[0]) is Parked:
            require_room(self.costs, rank.parked(), outputs)
        batches, items = NO_BATCHES, 1
        if name in PER_BATCH:
            batches = batches_of(outputs)
            items = len(batches)
        price = self._prices.get(name)
        length = ticks(self.game, name, items, used, outputs, rank.rank) if price is None else price * items
        if name == "fake_grad" and batches:
            never = named("batch", sorted(batches))
            if self.strict:
                raise RuleError(SAYS("batches never computed", batches=never))
            self.made_up.append(f"a gradient from fake_grad, of {never} that were never computed")
        confirm(rank, op, outputs, rank.clock, length, batches)
        if name == "set_final_copy":
            rank.copies.append(used[0])  # type: ignore[arg-type]  # a weight, as in the next line
        elif name == "set_final_weight":
            rank.final.append(used[0])  # type: ignore[arg-type]  # the rule has checked that it is a weight
        elif name == "set_output":
            rank.outputs.append(used[0])  # type: ignore[arg-type]  # an activation, as above

    # --- What ranks do together ---

    def on_end(self, cursor: RankState, call: Call) -> None:
        op = call.op
        if self.on_lanes:
            if op.start != call.start or op.end != call.end:
                why = SAYS("other ticks", start=call.start, end=call.end, op_start=op.start, op_end=op.end)
                self.refuse([call], TraceError(why))
            cursor.causes[call.at] = call.cause
            cursor.values.update(zip(op.outputs, call.outputs))
            return
        if cursor.clock < call.start:
            assert call.last is not None
            cursor.waited_for[call.at] = call.last
            cursor.cause = call.cause
        try:
            wanted = (
                collectives.requested_batches(self.game, op.name, op.batches) if op.name in REQUESTING else NO_BATCHES
            )
            confirm(cursor, op, call.outputs, call.start, call.end - call.start, wanted)
        except (PuzzleError, *MALFORMED) as why:
            raise placed(why, cursor) from None

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> NoReturn:
        if not self.on_lanes:
            raise why
        first = min(calls, key=lambda call: (call.clock, call.rank))
        raise why.at(place_text(first.rank, self.costs.text(first.clock), first.op.call()), first.op.line)

    def on_receive(self, cursor: RankState, op: Op, sender: RankState, sent_at: int) -> None:
        message = sender.ops[sent_at]
        if message.end > cursor.clock:
            cursor.waited_for[cursor.at] = cursor.cause = (sender.rank, sent_at)
        start = sender.read[sent_at] = max(cursor.clock, message.end)
        values = sender.used(message)
        confirm(cursor, op, values, start, message_ticks("receive", values, self.costs, (sender.rank, cursor.rank)))

    # --- The end ---

    def _refuse_deadlock(self, stuck: Sequence[RankState]) -> NoReturn:
        """Refuses a trace in which ranks wait forever: their calls differ, or there is a deadlock."""
        first = stuck[0]
        place, line = first.place(first.op.call()), first.op.line
        try:
            self.require_same_calls()
        except PuzzleError as why:
            raise why.at(place, line) from None
        waits = [self._waiting(rank, rank.op) for rank in stuck]
        ended = {rank.rank: "has returned" for rank in self.cursors if rank.ended}
        raise DeadlockError(deadlock_text(waits, ended, cycle_of(waits), bool(self.mesh.axes)), place, line)

    def _waiting(self, rank: RankState, op: Op) -> WaitingRank:
        if op.name == "receive":
            return WaitingRank(rank.rank, op.call(), op.line, "receive", op.args[:1])
        group = group_of(op) if op.name in COLLECTIVES else None
        call = rank.calls[op.args[0]] if op.name == "await" else self.call(rank, op, group, ())
        text = f"{'await ' if op.name == 'await' else ''}{call.op.call()}{in_group(call.group)}"
        return WaitingRank(rank.rank, text, op.line, *self.why_blocked(call))

    def _refuse_leftovers(self) -> None:
        """Refuses calls that were not awaited, and messages that were not received."""
        for rank in self.ranks:
            for call in rank.calls.values():
                raise RuleError(SAYS("never awaited", call=call), rank.place("the end"), call.op.line)
        for rank in self.ranks:
            for source, sent_at in self.mailboxes.unread(rank.rank):
                op, why = self.ranks[source].ops[sent_at], SAYS("never received", to=rank.rank)
                raise RuleError(why, place_text(source, self.costs.text(op.start), op.call()), op.line)


def executed(trace: Trace) -> list[RankState]:
    """The ranks of a trace, executed as far as it is legal. The referee says where it is not."""
    with no_collection():
        recomputation = Recomputation(trace)
        with suppress(PuzzleError):
            recomputation.run()
        return recomputation.ranks


# --- The training step of each operation, from the values that it uses and makes ---


def event_steps(trace: Trace) -> tuple[tuple[int, ...], ...]:
    """For each rank, the step of each operation, as far as the trace is legal.

    Data and gradients carry their step. An operation on weights alone belongs to the step that computes with these
    weights. An average of replicas, and operations after the last update, belong to the step that has just ended.
    """
    last, takes_turns = trace.setting.steps - 1, trace.setting.task == "outer"
    return tuple(tuple(min(last, step) for step in _steps(rank, takes_turns)) for rank in executed(trace))


def _steps(rank: RankState, takes_turns: bool) -> Iterator[int]:
    """With outer steps, operations on weights alone belong to the step of the operation before them."""
    step = 0
    for op in rank.done:
        values: list[Any] = [unparked(rank.values[number]) for number in (*op.inputs, *op.outputs)]
        data = [value.step for value in values if not isinstance(value, Stepped)]
        if data or not values:
            step = data[0] if data else step if takes_turns else 0
        elif not takes_turns:
            step = int(values[0].step) - (op.name in SUMMING)
        yield step


def old_versions(trace: Trace) -> tuple[frozenset[int], ...]:
    """For each rank, the indices of forwards whose weight is older than the data, as far as the trace is legal."""
    return tuple(frozenset(_made_with_old(rank)) for rank in executed(trace))


def _made_with_old(rank: RankState) -> Iterator[int]:
    for at, op in enumerate(rank.done):
        if op.name == "forward" and getattr(rank.values[op.outputs[0]], "version", None) is not None:
            yield at


SAYS = Sentences(
    {
        "senseless record": "this record makes no sense ({why}): {record}",
        "other ticks": "it takes place from tick {start} to {end}, not {op_start} to {op_end}",
        "other batches": "it is of batches {batches}, not {its_batches}",
        "other values": "it makes {values} values from number {first} on, not {numbers}",
        "takes no time": "to {name} takes no time, and makes nothing; this record is {op}",
        "nothing stored": "nothing is stored under this key",
        "stored value not made": "it stores value {number}, which this rank has not made",
        "wrong dictionary": "{dictionary} does not hold {kind}",
        "still pending": "the {value} is still pending; await it first",
        "made by hand": "the {value} was made by hand or by a model of another Dist; in a puzzle, get it from this model's own operations",
        "other layer": "it is of layer {layer}, the layer of the {value}, not {op_layer}",
        "no root": "a {name} names its root by a whole number; this record is {op}",
        "default recorded": "a record leaves out arguments that have their default; this one is {op}",
        "no labels": "a label is a whole number for each value; this record is {op}",
        "no group": "a group is some of the ranks, ascending; this record is {op}",
        "other message": "it makes {count} values from number {first} on, of no batches; this record is {op}",
        "nothing pending": "nothing is pending in the costs {costs!r}, which have no overlap: {op}",
        "not pending": "operation {operation} of this rank is not a pending call; a call is awaited once, after it was made",
        "other end": "it goes from tick {start} to {end} and uses {inputs}, as {call} does; this record is {op}",
        "never awaited": "{call} was never awaited; await its handle before the end",
        "values not numbered": "the values that this trace uses are not numbered by whole numbers",
        "ranks missing": "the trace is of {ranks} and holds {held}",
        "value not made": "it uses value {number}, which this rank has not made",
        "no operation": "there is no operation {name!r}",
        "other record": "a record of {name} holds {form}; this one is {op}",
        "batches never computed": "the gradient of {batches} was never computed; run forward and backward on these batches (a puzzle allows fake_grad only without batches, as a zero)",
        "never received": "this message was never received; receive it on rank {to}, or do not send it",
    }
)

"""Re-executes a trace from the rules alone, trusting nothing it can recompute: values, clocks, meetings, messages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lib.communication.folded_mesh import mesh_of
from lib.communication.lanes import LANES, Place, beside
from lib.communication.meetings import message_ticks, reach, settle, ticks
from lib.communication.mesh import Mesh
from lib.communication.walk import Walk
from lib.errors import PuzzleError, RuleError, TraceError
from lib.game.costs import COPYING, elements_sent
from lib.game.setting import Game
from lib.rules import memory_tiers, operations
from lib.rules.collectives import ASKING, asked, contribute
from lib.rules.operations import BATCHED, LOCAL_RULES
from lib.trace.ops import FORMS, FREE, NO_BATCHES, Op, Trace, place_text
from lib.values.algebra import named
from lib.values.base import Value, copy_of
from lib.values.kinds import Parked

from .call_records import require_group, require_tag
from .rank_state import MALFORMED, Arrival, RankState, arrived, confirm, placed
from .recompute_lanes import RetracedLanes
from .storing import follow_stored, refuse_given, refuse_under_way
from .stuck import refuse_deadlock

Met = tuple[tuple[Value, ...], int, int, int, Place, Place | None]
"""One rank's share of a collective: what it gets, the elements it sends, the start, the ticks, the call that set the
start, and the event that this call came after."""


_SHAPES = {name: (not form.layer, form.uses, len(form.args)) for name, form in FORMS.items()}
"""Of a record without optional columns: whether it names no layer, and how many values and arguments it holds."""


class Retrace(Walk[RankState]):
    """The run of a trace. `made_up` lists the values that no operation made; `strict` refuses them."""

    def __init__(self, trace: Trace, strict: bool = False) -> None:
        self.trace = trace
        self.size = trace.size
        self.game, self._impossible = _game_of(trace)
        self.costs = trace.costs
        self.strict = strict
        self.mesh = Mesh((), trace.size.ranks)  # that of the trace once it is checked, when it is run
        self._prices = {**self.game.prices, **dict.fromkeys(FREE, 0)}
        """Ticks per batch, of what costs as much wherever it is done."""
        self._alone = frozenset(LOCAL_RULES).difference(beside(trace.costs))
        self._begin(in_order=False)

    def _begin(self, in_order: bool) -> None:
        self._in_order = in_order
        """Storing and deleting are checked where they come, and not at the end."""
        costs = self.costs
        self.ranks = [RankState(rank, ops, 0, costs, self.strict) for rank, ops in enumerate(self.trace.ranks)]
        super().__init__(self.ranks)
        self.lanes: RetracedLanes | None = None
        if costs.overlap:
            self.lanes = RetracedLanes(self.game, self.ranks, self.mailboxes, self.wake_receiver, self.wake)
        self.made_up: list[str] = []

    def run(self) -> None:
        """Executes every rank to its end.

        What a rank stores concerns no other and is most of a trace, so each rank's is followed in one go, when all have
        come as far as they can. If it is wrong somewhere, that may not be the first thing that is against the rules: to
        find that, all is executed again, in order.

        Raises:
            PuzzleError: the first thing that is against the rules, with its place.
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
            raise TraceError("the values that this trace uses are not numbered by whole numbers")

    def _follow_storage(self) -> bool:
        """Follows what every rank has stored so far; False if that is not as a run writes it."""
        try:
            for rank in self.ranks:
                rank.liveness.follow(rank.at)
        except (TraceError, LookupError, *MALFORMED):
            return False
        return True

    def _execute(self) -> None:
        if self._impossible is not None:
            raise self._impossible
        if len(self.ranks) != self.game.classes:
            raise TraceError(f"the trace is of {self.game.classes} ranks and holds {len(self.ranks)}")
        self.mesh = mesh_of(self.game)
        try:
            if stuck := self.walk():
                refuse_deadlock(stuck, self.ranks, self.meetings, self.lanes)
            if self.lanes is not None:
                self.lanes.refuse_unawaited()
        finally:
            self.lanes = None  # which refers to this retrace: so both are freed without a collection
        self._refuse_unread()
        if self.game.task == "infer":
            operations.complete_outputs(self.game, [output for rank in self.ranks for output in rank.outputs])
        else:
            operations.complete(self.game, [weight for rank in self.ranks for weight in rank.final])

    def go_on(self, cursor: RankState) -> None:
        """Executes one rank's operations until it ends or has to wait; a refusal gets its place.

        Storing and deleting are passed over, unless they are to be checked in order.
        """
        ops, at, past, alone = cursor.ops, cursor.at, len(cursor.ops), self._alone
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
                if name in alone:
                    self._compute(cursor, ops[at])
                elif not self.visit(cursor, ops[at]):
                    return
                at += 1
            cursor.at = at
        except (PuzzleError, *MALFORMED) as why:
            raise placed(why, cursor) from None

    def visit(self, cursor: RankState, op: Op) -> bool:
        name = op.name
        if name == "await":
            if not self._lanes(op).join(cursor, op):
                return False
            cursor.at += 1
            return True
        used = self._used(cursor, op)
        if name in LANES:
            return self._call(cursor, op, used)
        if name == "given":
            self._take_over(cursor, op)
        else:
            require_tag(self.game, op)
            return self.receive(cursor, op)
        cursor.at += 1
        return True

    def _call(self, cursor: RankState, op: Op, used: list[Value]) -> bool:
        """Checks a call that meets other ranks; then it is issued on its lane, or met at once."""
        self.costs.require_priced(op.name)
        group = None
        if op.name == "pass_to":
            operations.partner(self.game, cursor.rank, op.args[0])
            operations.message(used)
            require_tag(self.game, op)
        elif op.name in COPYING:
            if not any(number in cursor.under_way for number in op.used):
                memory_tiers.require_room(self.costs, cursor.parked(), LOCAL_RULES[op.name](self.game, op, used))
        else:
            for value in used:
                contribute(self.game, op.name, value)
            if op.args or op.layer != used[0].layer:
                group = require_group(self.mesh, cursor.rank, op, used)
        if self.lanes is None:
            if op.name == "pass_to":
                return self.send(cursor, op)
            cursor.arrival = arrived(cursor.rank, cursor.clock, op.line, op.name, group, (*used,), op.batches)
            return self.join(cursor, group)
        self.lanes.call(cursor, op, used, group)
        cursor.at += 1
        return True

    def receive(self, cursor: RankState, op: Op) -> bool:
        received = super().receive(cursor, op)
        if received and self.lanes is not None:
            self.lanes.retry(op.args[0])
        return received

    def _lanes(self, op: Op) -> RetracedLanes:
        if self.lanes is None:
            raise TraceError(f"nothing is under way in the costs {self.costs.name!r}, which have no overlap: {op}")
        return self.lanes

    def _used(self, rank: RankState, op: Op) -> list[Value]:
        """The values that an operation uses, if its record holds what FORMS asks of it and this rank has made them."""
        name, numbers, args = op.name, op.used, op.args
        if not type(numbers) is type(args) is tuple or _SHAPES.get(name) != (op.layer is None, len(numbers), len(args)):
            self._require_form(op)
        try:
            used = [*map(rank.values.__getitem__, numbers)]
        except KeyError as missing:
            raise TraceError(f"it uses value {missing}, which this rank has not made") from None
        if rank.under_way and not rank.under_way.keys().isdisjoint(numbers) and name not in LANES:
            refuse_under_way(rank, numbers)
        if rank.given and self.strict:
            refuse_given(rank, op)
        return used

    def _require_form(self, op: Op) -> None:
        """Refuses a record that does not hold what FORMS asks of it."""
        form = FORMS.get(op.name)
        if form is None:
            raise TraceError(f"there is no operation {op.name!r}")
        fits = type(op.used) is type(op.args) is tuple and form.takes(len(op.used), self.lanes is not None)
        if not fits or (op.layer is None) is form.layer or not form.fits(op.args):
            raise TraceError(f"a record of {op.name} holds {form.describe()}; this one is {op}")

    # --- What a rank does on its own ---

    def _compute(self, rank: RankState, op: Op) -> None:
        """Executes an operation on the rank's own values."""
        name, used = op.name, self._used(rank, op)
        made = LOCAL_RULES[name](self.game, op, used)
        if made and type(made[0]) is Parked:
            memory_tiers.require_room(self.costs, rank.parked(), made)
        batches, items = NO_BATCHES, 1
        if name in BATCHED:
            batches = made[0].batches  # type: ignore[attr-defined]  # what BATCHED means
            items = len(batches)
        price = self._prices.get(name)
        length = operations.ticks(self.game, name, items, used, made) if price is None else price * items
        if name == "fake_grad" and batches:
            self._note_made_up_gradient(named("batch", sorted(batches)))
        confirm(rank, op, made, rank.clock, length, batches)
        if name == "set_final_weight":
            rank.final.append(used[0])  # type: ignore[arg-type]  # the rule has checked that it is a weight
        elif name == "set_output":
            rank.outputs.append(used[0])  # type: ignore[arg-type]  # an activation, as above
        rank.at += 1

    def _note_made_up_gradient(self, batches: str) -> None:
        if self.strict:
            raise RuleError(
                f"the gradient of {batches} was never computed; run forward and backward on these batches "
                "(a puzzle allows fake_grad only without batches, as a zero)"
            )
        self.made_up.append(f"a gradient from fake_grad, of {batches} that were never computed")

    def _take_over(self, rank: RankState, op: Op) -> None:
        """Accepts a value that no operation of the run made."""
        (value,) = op.args
        self.made_up.append(f"the {value}, made by hand or by a model of another Dist")
        rank.given.add(len(rank.values))
        confirm(rank, op, (copy_of(value),), rank.clock, 0)

    # --- What ranks do together ---

    def meet(self, cursors: Sequence[RankState]) -> list[Met]:
        arrivals: list[Arrival] = [rank.arrival for rank in cursors]  # type: ignore[misc]  # all have come
        results, start = settle(arrivals, self.game)
        length = ticks(arrivals, self.game)
        last = cursors[[call.clock for call in arrivals].index(start)]
        setter, before = (last.rank, last.at), last.came_from()
        sent = self._elements_sent(arrivals)
        return [(made, elements, start, length, setter, before) for made, elements in zip(results, sent)]

    def _elements_sent(self, arrivals: Sequence[Arrival]) -> list[int]:
        """How many elements each member of a collective sends."""
        name, members = arrivals[0].name, len(reach(self.game, arrivals[0].group))
        sizes = [call.values[0].memory(self.costs) for call in arrivals]
        sent = {elements: elements_sent(name, elements, members) for elements in {*sizes}}
        return [*map(sent.__getitem__, sizes)]

    def met(self, cursor: RankState, op: Op, result: Met) -> None:
        made, sent, start, length, setter, before = result
        if cursor.clock < start:
            cursor.held_up[cursor.at] = setter
            cursor.cause = before
        cursor.elements += sent
        try:
            wanted = asked(self.game, op.name, op.batches) if op.name in ASKING else NO_BATCHES
            confirm(cursor, op, made, start, length, wanted)
        except (PuzzleError, *MALFORMED) as why:
            raise placed(why, cursor) from None

    def sent(self, cursor: RankState, op: Op) -> None:
        used = cursor.used(op)
        cursor.messages += 1
        elements = sum(value.memory(self.costs) for value in used)
        cursor.elements += elements_sent("pass_to", elements, self.size.ranks)
        confirm(cursor, op, (), cursor.clock, message_ticks("pass_to", used, self.costs, (cursor.rank, op.args[0])))

    def received(self, cursor: RankState, op: Op, sender: RankState, sent_at: int) -> None:
        message = sender.ops[sent_at]
        if message.end > cursor.clock:
            cursor.held_up[cursor.at] = cursor.cause = (sender.rank, sent_at)
        start = sender.read[sent_at] = max(cursor.clock, message.end)
        values = sender.used(message)
        confirm(cursor, op, values, start, message_ticks("receive", values, self.costs, (sender.rank, cursor.rank)))

    # --- The end ---

    def _refuse_unread(self) -> None:
        for rank in self.ranks:
            for source, sent_at in self.mailboxes.unread(rank.rank):
                op = self.ranks[source].ops[sent_at]
                raise RuleError(
                    f"this message was never received; receive it on rank {rank.rank}, or do not send it",
                    place_text(source, self.costs.text(op.start), op.call()),
                    op.line,
                )


def _game_of(trace: Trace) -> tuple[Game, PuzzleError | None]:
    """The game of a trace; and if it cannot be folded as it says, without that, and the reason."""
    try:
        return Game.of(trace.size, trace.setting), None
    except PuzzleError as why:
        return Game.of(trace.size, replace(trace.setting, fold="")), why

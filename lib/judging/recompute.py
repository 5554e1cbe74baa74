"""Re-executes a trace from the rules alone. Everything that can be recomputed is: values, clocks, meetings,
messages."""

from collections.abc import Sequence
from contextlib import suppress

from lib.communication.calls import Call
from lib.communication.lanes import LANES, overlapped
from lib.communication.meetings import message_ticks
from lib.communication.mesh import Mesh
from lib.errors import PuzzleError, RuleError, TraceError
from lib.game.setting import Game
from lib.game.tiers import ON_TIER
from lib.rules import completeness, durations, memory_tiers, operations, outer
from lib.rules.collectives import COLLECTIVES, REQUESTING, Group, requested_batches, require_contribution
from lib.rules.operations import LOCAL_RULES, PER_BATCH, batches_of
from lib.rules.rooted import refuse_broadcast
from lib.trace.gc_pause import no_collection
from lib.trace.ops import FORMS, FREE, NO_BATCHES, Op, Trace, place_text
from lib.values.algebra import counted, named
from lib.values.base import Value, copy_of
from lib.values.kinds import Parked

from .rank_state import MALFORMED, RankState, confirm, placed, uses_of_weights
from .recompute_lanes import OverlappedCalls, refuse_deadlock
from .record_checks import follow_stored, refuse_handmade, refuse_pending, require_group, require_tag
from .words import SAYS

_SHAPES = {name: (not form.layer, form.inputs, len(form.args)) for name, form in FORMS.items()}
"""The form of a record without optional columns: whether it has no layer, and its numbers of values and arguments."""


class Recomputation(OverlappedCalls):
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
            refuse_deadlock(stuck, self, bool(self.mesh.axes))
        self.refuse_unawaited()
        self._refuse_unread()
        if self.game.task == "infer":
            completeness.complete_outputs(self.game, [output for rank in self.ranks for output in rank.outputs])
        else:
            final = [weight for rank in self.ranks for weight in rank.final]
            completeness.complete(self.game, final)
            if self.game.task == "outer":
                outer.complete_copies(self.game, final, [copy for rank in self.ranks for copy in rank.copies])
                outer.require_one_weight(uses_of_weights(self.ranks))

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
        used, group = self._checked_call(cursor, op)
        return (self.overlapped if self.on_lanes else self.call)(cursor, op, group, used)

    def _checked_call(self, cursor: RankState, op: Op) -> tuple[list[Value], Group | None]:
        """Checks a call that meets other ranks. Returns the values it uses, and its group."""
        used = self._used(cursor, op)
        self.costs.require_priced(op.name)
        for pending in map(cursor.pending.get, op.inputs if cursor.pending else ()):
            if pending is not None:
                refuse_broadcast(pending.name, pending)
        group = None
        if op.name == "pass_to":
            operations.partner(self.game, cursor.rank, op.args[0])
            operations.message(used)
            require_tag(self.game, op)
        elif op.name in ON_TIER:
            if cursor.pending.keys().isdisjoint(op.inputs):
                memory_tiers.require_room(self.costs, cursor.parked(), LOCAL_RULES[op.name](self.game, op, used))
        else:
            for value in used:
                require_contribution(self.game, op.name, value)
            if op.args or not used or op.layer != used[0].layer:
                group = require_group(self.mesh, cursor.rank, op, used)
        return used, group

    def send(self, cursor: RankState, op: Op) -> bool:
        self._checked_call(cursor, op)
        return super().send(cursor, op)

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
        if name == "given":
            return self._take_over(rank, op)
        outputs = LOCAL_RULES[name](self.game, op, used)
        if outputs and type(outputs[0]) is Parked:
            memory_tiers.require_room(self.costs, rank.parked(), outputs)
        batches, items = NO_BATCHES, 1
        if name in PER_BATCH:
            batches = batches_of(outputs)
            items = len(batches)
        price = self._prices.get(name)
        length = durations.ticks(self.game, name, items, used, outputs, rank.rank) if price is None else price * items
        if name == "fake_grad" and batches:
            self._note_made_up_gradient(named("batch", sorted(batches)))
        confirm(rank, op, outputs, rank.clock, length, batches)
        if name == "set_final_copy":
            rank.copies.append(used[0])  # type: ignore[arg-type]  # a weight, as in the next line
        elif name == "set_final_weight":
            rank.final.append(used[0])  # type: ignore[arg-type]  # the rule has checked that it is a weight
        elif name == "set_output":
            rank.outputs.append(used[0])  # type: ignore[arg-type]  # an activation, as above

    def _note_made_up_gradient(self, batches: str) -> None:
        if self.strict:
            raise RuleError(SAYS("batches never computed", batches=batches))
        self.made_up.append(f"a gradient from fake_grad, of {batches} that were never computed")

    def _take_over(self, rank: RankState, op: Op) -> None:
        """Adopts a value that no operation of the run has made."""
        (value,) = op.args
        self.made_up.append(f"the {value}, made by hand or by a model of another Dist")
        rank.handmade.add(len(rank.values))
        confirm(rank, op, (copy_of(value),), rank.clock, 0)

    # --- What ranks do together ---

    def on_end(self, cursor: RankState, call: Call) -> None:
        if self.on_lanes:
            return super().on_end(cursor, call)
        op = call.op
        if cursor.clock < call.start:
            assert call.last is not None
            cursor.waited_for[call.at] = call.last
            cursor.cause = call.cause
        try:
            wanted = requested_batches(self.game, op.name, op.batches) if op.name in REQUESTING else NO_BATCHES
            confirm(cursor, op, call.outputs, call.start, call.end - call.start, wanted)
        except (PuzzleError, *MALFORMED) as why:
            raise placed(why, cursor) from None

    def refuse(self, calls: Sequence[Call], why: PuzzleError) -> None:
        if self.on_lanes:
            return super().refuse(calls, why)
        raise why

    def on_send(self, cursor: RankState, op: Op) -> None:
        used = cursor.used(op)
        confirm(cursor, op, (), cursor.clock, message_ticks("pass_to", used, self.costs, (cursor.rank, op.args[0])))

    def on_receive(self, cursor: RankState, op: Op, sender: RankState, sent_at: int) -> None:
        message = sender.ops[sent_at]
        if message.end > cursor.clock:
            cursor.waited_for[cursor.at] = cursor.cause = (sender.rank, sent_at)
        start = sender.read[sent_at] = max(cursor.clock, message.end)
        values = sender.used(message)
        confirm(cursor, op, values, start, message_ticks("receive", values, self.costs, (sender.rank, cursor.rank)))

    # --- The end ---

    def _refuse_unread(self) -> None:
        for rank in self.ranks:
            for source, sent_at in self.mailboxes.unread(rank.rank):
                op = self.ranks[source].ops[sent_at]
                raise RuleError(
                    SAYS("never received", to=rank.rank),
                    place_text(source, self.costs.text(op.start), op.call()),
                    op.line,
                )


def executed(trace: Trace) -> list[RankState]:
    """The ranks of a trace, executed as far as it is legal. The referee says where it is not."""
    with no_collection():
        recomputation = Recomputation(trace)
        with suppress(PuzzleError):
            recomputation.run()
        return recomputation.ranks

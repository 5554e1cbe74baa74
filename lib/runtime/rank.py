"""Executes one rank's operations: validate, then record."""

from collections.abc import Callable, Coroutine, Sequence
from operator import index
from typing import Any

from lib.communication.calls import Call
from lib.communication.meetings import message_ticks
from lib.errors import PuzzleError, RuleError
from lib.rules import durations, memory_tiers, operations
from lib.rules.collectives import requested_batches, require_contribution
from lib.rules.rooted import require_root
from lib.trace.ops import NO_BATCHES, TIMED, Op, address, call_text, shortest
from lib.values import algebra
from lib.values.base import Value, unrecorded
from lib.values.kinds import Parked

from .lane_operations import A, LaneOperations, R, W
from .recorder import new_op, player_line
from .storage import Storage
from .waits import CallWait, Message, ReceiveWait, SendWait
from .words import SAYS


class RankOperations(LaneOperations):
    """One rank's part of a run. Every refusal is raised with its place, before anything has changed."""

    parked: Storage[Parked]

    def _source(self, name: str, rule: Callable[..., R], layer: int | None, *args: Any) -> R:
        """Performs an operation that makes values from nothing, and returns what its rule returns."""
        recorder, line = self._recorder, player_line(2)
        try:
            self._ready()
            result = rule(self._game, *args) if layer is None else rule(self._game, layer, *args)
            results: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
            self._require_room(results)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, layer)), line) from None
        layer = None if layer is None else results[0].layer
        if name in operations.PER_BATCH:
            value, cut = results[0], name == "get_activation" and args[2] is not None
            more = shortest(value.step or None, tuple(sorted(value.shards)) if cut else None)
            recorder.write(name, results, line, (), layer, operations.batches_of(results), more)
        else:
            *plain, outer = [part if part is None or isinstance(part, str) else index(part) for part in args]
            more = shortest(*plain, outer or None)
            recorder.write(name, results, line, (), layer, args=more)
        return result

    def _require_room(self, results: Sequence[Value]) -> None:
        """Refuses to park more on a tier than its capacity."""
        if type(results[0]) is Parked:
            parked = {id(value): value for value in self.parked.values()}
            memory_tiers.require_room(self.run.costs, parked.values(), results)

    def _compute(
        self, name: str, rule: Callable[..., R], layer: int | None, *used: Any, args: tuple[int, ...] = ()
    ) -> R:
        """Performs an operation on this rank's values, and returns what its rule returns."""
        recorder, line = self._recorder, player_line(2)
        game = recorder.game
        try:
            if recorder.unawaited is not None or recorder.under_way is not None:
                self._ready()
            if layer is None:
                result = rule(game, *used)
            else:
                if type(layer) is not int:
                    layer = algebra.whole_number(layer, "layer")
                result = rule(game, layer, *args, *used)
            results: tuple[Any, ...] = result if isinstance(result, tuple) else (result,)
            batches: frozenset[int] = operations.batches_of(results) if name in operations.PER_BATCH else NO_BATCHES
            timed = name in TIMED
            ticks = durations.ticks(game, name, len(batches) or 1, used, results, recorder.rank) if timed else 0
            numbers = recorder.claim_all(used)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, layer)), line) from None
        recorder.write(name, results, line, numbers, layer, batches, args, None, ticks)
        return result

    def _collective(self, name: str, given: Any, label: Any, group: Any, batches: Any = (), root: Any = None) -> Any:
        """A collective of a group, which may ask for batches or have a root. The layer is that of the value; a
        different label is recorded with it."""
        recorder, run, line = self._recorder, self.run, player_line(2)
        try:
            if recorder.unawaited is not None or recorder.under_way is not None:
                self._ready()
            run.costs.require_priced(name)
            if isinstance(label, Value):
                raise RuleError(SAYS("value comes first", name=name))
            wanted = requested_batches(run.game, name, batches) if batches else NO_BATCHES
            members = None if group is None else run.mesh.group(recorder.rank, group)
            if root is not None:
                ranks = members or range(run.game.ranks)
                root = require_root(name, root, recorder.rank, ranks, given is not None)
            if run.costs.overlap and not isinstance(given, Value | None):
                return self._bucket(name, given, label, members, line, wanted, root)
            if type(label) is not int:
                if isinstance(given, list):
                    raise RuleError(SAYS("list without overlap"))
                label = algebra.whole_number(label, "layer")
            values = () if root is not None and given is None else (given,)
            for value in values:
                require_contribution(run.game, name, value)
            used = recorder.claim_all(values)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, label)), line) from None
        layer = values[0].layer if values else label
        args = shortest(members, None if label == layer else label, root)
        if run.costs.overlap:
            return self._issue(name, values, used, layer, args, members, line, wanted)
        clock = recorder.clock
        op = new_op(Op, (name, clock, clock, layer, wanted, used, (), args, line))  # recorded when it has ended
        call = Call(recorder.rank, len(recorder.ops), clock, None, op, members, values)
        return self._promise(CallWait(recorder.rank, clock, line, call, run.lanes), run.meet, self._met)

    def _met(self, wait: CallWait, _: bool) -> Value | None:
        call = wait.of
        name, _start, _end, layer, batches, used, _outputs, args, line = call.op
        outputs = [unrecorded(value) for value in call.outputs]
        self._recorder.write(name, outputs, line, used, layer, batches, args, call.start, call.end - call.start)
        return outputs[0] if outputs else None

    def _posted(self, wait: SendWait, _: bool) -> None:
        ticks = wait.message.sent - wait.clock
        self._recorder.write(
            "pass_to", (), wait.line, wait.used, None, NO_BATCHES, address(wait.to, wait.tag), wait.clock, ticks
        )

    def _received(self, wait: ReceiveWait, answer: tuple[int, Message]) -> Any:
        source, message = answer
        ticks = message_ticks("receive", message.values, self.run.costs, (source, self._rank))
        start = max(wait.clock, message.sent)
        self._recorder.write(
            "receive", message.values, wait.line, (), None, NO_BATCHES, address(source, wait.tag), start, ticks
        )
        return message.payload

    def _promise(self, wait: W, meet: Callable[[W], A | None], written: Callable[[W, A], R]) -> Coroutine[Any, Any, R]:
        """The coroutine that a call returns. The rank's next call checks whether it was awaited."""
        coroutine = self._together(wait, meet, written)
        self._recorder.unawaited = (coroutine, wait)
        return coroutine

"""Executes one rank's operations: validate, then record.

An operation applies its rule first, and nothing has changed if that refuses. All calls that take time beside others
are made in one place, as a `Call`: awaited at once, or pending on a lane behind a `Handle`.

This module decides in which order a call is checked and recorded. What is allowed is decided by the rules, when a call
takes place by `lanes`, and what a player may write by `model`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from operator import index
from typing import Any, NoReturn, TypeVar

from lib.errors import PuzzleError, RuleError, Sentences
from lib.ledger import algebra, collectives, operations
from lib.ledger.collectives import Group
from lib.ledger.meetings import Call, PendingValue, layer_of, message_ticks
from lib.ledger.setting import Game
from lib.ledger.trace import FORMS, NO_BATCHES, TIMED, Op, address, call_text, shortest
from lib.ledger.updates import require_room
from lib.ledger.values import Parked, Value, object_text, unrecorded

from .live_run import LiveRun
from .recorder import RankRecorder, Storage, new_op, player_line
from .waits import CallWait, Message, ReceiveWait, Wait

# --- Handles: what a call returns where communication overlaps with computation ---


class Handle:
    """A call that may be pending. For its result, `await` the handle once, on the rank that made the call.

    Corresponds to `work = dist.all_gather(..., async_op=True)`, with `await handle` for `work.wait()`. A handle may be
    passed to another call in place of a value; that call then runs after this one (`lib.ledger.lanes` says why).
    """

    __slots__ = ("awaited_on", "call", "listed", "owner")

    def __init__(self, owner: Any, call: Call, listed: bool) -> None:
        self.owner = owner
        """The rank that made the call, which joins it."""
        self.call = call
        self.listed = listed
        """The result is a list of values, because a list was passed."""
        self.awaited_on: int | None = None
        """The line on which it was awaited."""

    def __await__(self) -> Generator[Any, Any, Any]:
        joined: Generator[Any, Any, Any] = self.owner.join(self, player_line())
        return joined

    def __str__(self) -> str:
        return str(self.call)

    def __repr__(self) -> str:
        return f"<handle of {self}>"

    def __getattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"there is no {name!r} in {self.unawaited}")

    def __add__(self, other: object) -> NoReturn:
        raise RuleError(SAYS("handle summed", handle=self.unawaited))

    __radd__ = __add__

    def __getitem__(self, n: int) -> PendingValue:
        """The n-th result of the call, to pass to another call."""
        return self.made[n]

    def __iter__(self) -> NoReturn:
        whose = "a bucket's" if self.listed else "a call's"
        raise RuleError(SAYS("handle not awaited", whose=whose, handle=self.unawaited))

    @property
    def made(self) -> list[PendingValue]:
        """The results of the call, to pass to another call."""
        return [PendingValue(self.call, n) for n in range(len(self.call.op.outputs))]

    @property
    def result(self) -> Any:
        """The result of `await`, once the call has ended."""
        outputs = self.call.outputs
        return list(outputs) if self.listed else tuple(outputs) if len(outputs) > 1 else outputs[0] if outputs else None

    @property
    def unawaited(self) -> str:
        """What a message says about a handle that is used in place of a value."""
        return f"the result of {self}, which is still pending; await it first"


def cannot_send(value: str) -> RuleError:
    return RuleError(SAYS("cannot send", value=value))


def map_values(take: Callable[[Value], Value], payload: Any) -> Any:
    """A copy of `payload` with `take` applied to each value in it, in order. Everything else stays as it is."""
    if isinstance(payload, Value):
        return take(payload)
    if isinstance(payload, Handle | PendingValue):
        raise cannot_send(payload.unawaited)
    if isinstance(payload, dict):
        return {map_values(take, key): map_values(take, part) for key, part in payload.items()}
    if isinstance(payload, tuple) and hasattr(payload, "_fields"):
        return type(payload)(*(map_values(take, part) for part in payload))
    if isinstance(payload, tuple):
        return tuple(map_values(take, part) for part in payload)
    if isinstance(payload, list):
        return [map_values(take, part) for part in payload]
    if isinstance(payload, (set, frozenset)):
        return type(payload)(map_values(take, part) for part in sorted(payload, key=repr))
    return payload


# --- The operations of a rank ---

A = TypeVar("A")
R = TypeVar("R")
W = TypeVar("W", bound=Wait)


def several_values(name: str, given: object) -> RuleError:
    return RuleError(SAYS("several values", name=name, got=object_text(given)))


class RankOperations:
    """One rank's part of a run. Every refusal is raised with its place, before anything has changed."""

    _rank: int
    run: LiveRun
    parked: Storage[Parked]
    _recorder: RankRecorder
    _game: Game

    def _ready(self) -> None:
        """Refuses a call while another one has not been awaited or has not ended."""
        recorder = self._recorder
        if recorder.unawaited is not None:
            raise recorder.refuse_unawaited()
        if recorder.under_way is not None:
            raise RuleError(SAYS("rank still waits", call=recorder.under_way.call(), line=recorder.under_way.line))

    async def _together(self, wait: W, meet: Callable[[W], A | None], written: Callable[[W, A], R]) -> R:
        """Meets other ranks while this rank is marked as being in that call, and records the outcome."""
        recorder, run = self._recorder, self.run
        recorder.unawaited, recorder.under_way = None, wait
        run.act(wait.rank)
        try:
            answer = meet(wait)
            if answer is None:
                answer = await run.suspend(wait)
        except PuzzleError as why:
            raise why.at(recorder.place(wait.call()), wait.line) from None
        finally:
            recorder.under_way = None
            if wait.future is not None:
                run.leave(wait)
        return written(wait, answer)

    # --- On a lane, where communication overlaps computation ---

    def _bucket(
        self, name: str, given: Any, label: Any, group: Group | None, line: int, asked: frozenset[int], root: int | None
    ) -> Awaitable[Any]:
        """A collective of a call's result, or of a list of values with a list of layers: a bucket."""
        listed = isinstance(given, list) or (isinstance(given, Handle) and given.listed)
        if listed and not FORMS[name].bucket:
            raise several_values(name, given)
        parts = self._parts(given)
        if not listed:
            label = label if type(label) is int else algebra.whole_number(label, "layer")
        elif not isinstance(label, list) or len(label) != len(parts):
            raise RuleError(SAYS("values without layers", count=len(parts), got=object_text(label)))
        else:
            label = tuple(algebra.whole_number(number, "layer") for number in label)
        used = tuple([self._brought(name, part) for part in parts])
        layers = tuple(map(layer_of, parts))
        if label == layers[0] or label == layers:
            label = None
        elif len(parts) == 1 and listed:
            (label,) = label
        return self._begin(name, parts, used, layers[0], shortest(group, label, root), group, line, asked, listed)

    def _begin(
        self,
        name: str,
        parts: Sequence[Any],
        used: tuple[int, ...],
        layer: int | None,
        args: tuple[Any, ...],
        group: Group | None,
        line: int,
        asked: frozenset[int] = NO_BATCHES,
        listed: bool = False,
        payload: Any = None,
        makes: int | None = None,
    ) -> Awaitable[Any]:
        """Makes a call. Where communication overlaps computation it starts as soon as it can, and a handle joins it;
        elsewhere the rank makes it when it awaits what is returned, and waits for its end."""
        recorder, overlap = self._recorder, self.run.costs.overlap
        at, clock = len(recorder.ops), recorder.clock
        if overlap:
            count = (
                collectives.results_of(name, len(parts), self._rank, collectives.root_in(name, args))
                if makes is None
                else makes
            )
            op = recorder.write_call(name, count, line, used, layer, args, asked)
            self.run.act(self._rank)
        else:
            op = new_op(Op, (name, clock, clock, layer, asked, used, (), args, line))  # recorded when it has ended
        call = Call(self._rank, at, clock, None, op, group, tuple(parts), payload=payload)
        if not overlap:
            return self._promise(CallWait(self._rank, clock, line, call, self.run), self.run.meet, self._met)
        self.run.issue(call)
        handle = recorder.handles[at] = Handle(self, call, listed)
        return handle

    def _brought(self, name: str, part: Value | PendingValue) -> int:
        """The number of a value that a collective may use."""
        if isinstance(part, PendingValue):
            collectives.refuse_broadcast(part.call.name, part.call)
            return part.number
        collectives.require_contribution(self._game, name, part)
        return self._recorder.claim(part)

    def _one(self, name: str, given: Any) -> Value | PendingValue:
        """The given value, or the value that a call will make."""
        parts = self._parts(given)
        if len(parts) != 1 or isinstance(given, list):
            raise several_values(name, given)
        return parts[0]

    def _parts(self, given: Any) -> list[Value | PendingValue]:
        """The given value, results of another call, or a list of these."""
        if isinstance(given, list):
            if not given:
                raise RuleError(SAYS("empty list"))
            return [part for item in given for part in self._parts(item)]
        if not isinstance(given, Handle | PendingValue):
            return [given]
        call, ops = given.call, self._recorder.ops
        if call.at >= len(ops) or ops[call.at] is not call.op:
            raise RuleError(SAYS("handle used elsewhere", handle=given))
        results = [given] if isinstance(given, PendingValue) else given.made
        if not results:
            raise RuleError(SAYS("no value made", handle=given))
        return [*results]

    def join(self, handle: Handle, line: int) -> Generator[Any, Any, Any]:
        """Waits for the end of a call, and returns its result.

        Raises:
            RuleError: another rank awaits it, or it was already awaited.
        """
        call, recorder = handle.call, self._recorder
        try:
            other = self.run.other_rank(self._rank)
            if other is not None:
                recorder = self.run.recorders[other]
                raise RuleError(SAYS("handle awaited elsewhere", handle=handle, rank=self._rank))
            if recorder.unawaited is not None or recorder.under_way is not None:
                self._ready()
            if handle.awaited_on is not None:
                raise RuleError(SAYS("awaited twice", handle=handle, line=handle.awaited_on))
        except PuzzleError as why:
            raise why.at(recorder.place(f"await {call.op.call()}"), line) from None
        if call.end >= 0:
            self.run.act(self._rank)
        else:
            wait = CallWait(self._rank, recorder.clock, line, call, self.run)
            yield from self._together(wait, self.run.ended, lambda *_: None).__await__()
        recorder.write_await(call, line)
        handle.awaited_on = line
        del recorder.handles[call.at]
        return handle.result

    def finish(self) -> None:
        """Refuses to end while a call has not been awaited."""
        recorder = self._recorder
        line = recorder.unawaited[1].line if recorder.unawaited else 0
        try:
            self._ready()
            for row, handle in recorder.handles.items():
                line = recorder.ops[row].line
                raise RuleError(SAYS("never awaited", call=handle))
        except PuzzleError as why:
            raise why.at(recorder.place("the end"), line) from None

    # --- The calls ---

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
            require_room(self.run.costs, parked.values(), results)

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
            ticks = operations.ticks(game, name, len(batches) or 1, used, results, recorder.rank) if timed else 0
            numbers = recorder.claim_all(used)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, layer)), line) from None
        recorder.write(name, results, line, numbers, layer, batches, args, None, ticks)
        return result

    def _collective(
        self, name: str, given: Any, label: Any, group: Any, batches: Any = (), root: Any = None
    ) -> Awaitable[Any]:
        """A collective of a group, which may ask for batches or have a root. The layer is that of the value; a
        different label is recorded with it."""
        recorder, run, line = self._recorder, self.run, player_line(2)
        try:
            if recorder.unawaited is not None or recorder.under_way is not None:
                self._ready()
            run.costs.require_priced(name)
            if isinstance(label, Value):
                raise RuleError(SAYS("value comes first", name=name))
            wanted = collectives.requested_batches(run.game, name, batches) if batches else NO_BATCHES
            members = None if group is None else run.mesh.group(recorder.rank, group)
            if root is not None:
                ranks = members or range(run.game.ranks)
                root = collectives.require_root(name, root, recorder.rank, ranks, given is not None)
            if run.costs.overlap and not isinstance(given, Value | None):
                return self._bucket(name, given, label, members, line, wanted, root)
            if type(label) is not int:
                if isinstance(given, list):
                    raise RuleError(SAYS("list without overlap"))
                label = algebra.whole_number(label, "layer")
            values = () if root is not None and given is None else (given,)
            for value in values:
                collectives.require_contribution(run.game, name, value)
            used = recorder.claim_all(values)
        except PuzzleError as why:
            raise why.at(recorder.place(call_text(name, label)), line) from None
        layer = values[0].layer if values else label
        args = shortest(members, None if label == layer else label, root)
        return self._begin(name, values, used, layer, args, members, line, wanted)

    def _met(self, wait: CallWait, _: bool) -> Any:
        call = wait.of
        name, _start, _end, layer, batches, used, _outputs, args, line = call.op
        outputs = [unrecorded(value) for value in call.outputs]
        self._recorder.write(name, outputs, line, used, layer, batches, args, call.start, call.end - call.start)
        return tuple(outputs) if len(outputs) > 1 else outputs[0] if outputs else None

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


SAYS = Sentences(
    {
        "handle summed": "'+' takes values; this is {handle}",
        "handle not awaited": "{whose} values are there when it has been awaited; this is {handle}",
        "cannot send": "cannot send {value}",
        "several values": "{name} takes one value at a time; got {got}",
        "rank still waits": "this rank is still waiting in {call} on line {line}; a rank does one thing at a time, so await that call first",
        "values without layers": "{count} values need a list of {count} layers; got {got}",
        "empty list": "this list is empty; give at least one value",
        "handle used elsewhere": "{handle} belongs to another rank; only the rank that made a handle uses it",
        "no value made": "{handle} makes no value",
        "handle awaited elsewhere": "{handle} belongs to rank {rank}; only the rank that made a handle awaits it",
        "awaited twice": "{handle} was already awaited on line {line}; keep what 'await' returned",
        "never awaited": "{call} was never awaited; await its handle before the end",
        "value comes first": "the value comes first: {name}(value, layer)",
        "list without overlap": "a list of values needs costs with overlap; call once for each value",
    }
)

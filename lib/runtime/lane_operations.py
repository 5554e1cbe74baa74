"""One rank's calls that meet other ranks: one at a time, or pending on a lane until awaited."""

from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeVar

from lib.communication.calls import Call, PendingValue, layer_of
from lib.errors import PuzzleError, RuleError
from lib.game.setting import Game
from lib.rules.collectives import Group, require_contribution
from lib.rules.rooted import refuse_broadcast, results_of, root_in
from lib.trace.ops import FORMS, NO_BATCHES, shortest
from lib.values import algebra
from lib.values.base import Value, object_text

from .handles import Handle
from .live_run import LiveRun
from .recorder import RankRecorder
from .waits import CallWait, Wait
from .words import SAYS

A = TypeVar("A")
R = TypeVar("R")
W = TypeVar("W", bound=Wait)


def _nothing(*_: object) -> None:
    """Records nothing, for waits that only `write_await` records."""


class LaneOperations:
    """The operations of a rank that wait for others."""

    _rank: int
    run: LiveRun
    _recorder: RankRecorder
    _game: Game

    def _ready(self) -> None:
        """Refuses a call while another one has not been awaited or has not ended."""
        recorder = self._recorder
        if recorder.unawaited is not None:
            why = recorder.refuse_unawaited()
            assert why is not None
            raise why
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
        self,
        name: str,
        given: Any,
        label: Any,
        group: Group | None,
        line: int,
        asked: frozenset[int],
        root: int | None,
    ) -> Handle:
        """A collective of a call's result, or of a list of values with a list of layers: a bucket."""
        listed = isinstance(given, list) or (isinstance(given, Handle) and given.listed)
        if listed and not FORMS[name].bucket:
            raise RuleError(SAYS("several values", name=name, got=object_text(given)))
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
        return self._issue(name, parts, used, layers[0], shortest(group, label, root), group, line, asked, listed)

    def _issue(
        self,
        name: str,
        parts: Sequence[Value | PendingValue],
        used: tuple[int, ...],
        layer: int,
        args: tuple[Any, ...],
        group: Group | None,
        line: int,
        asked: frozenset[int],
        listed: bool = False,
    ) -> Handle:
        """Starts a collective, as soon as it can."""
        results = results_of(name, len(parts), self._rank, root_in(name, args))
        call = self._write_call(name, parts, used, results, layer, args, group, line, asked)
        self.run.lanes.issue(call)
        return self._handle(call, listed)

    def _brought(self, name: str, part: Value | PendingValue) -> int:
        """The number of a value that a collective may use."""
        if isinstance(part, PendingValue):
            refuse_broadcast(part.call.name, part.call)
            return part.number
        require_contribution(self._game, name, part)
        return self._recorder.claim(part)

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

    def _write_call(
        self,
        name: str,
        parts: Sequence[Value | PendingValue],
        used: tuple[int, ...],
        results: int,
        layer: int | None,
        args: tuple[Any, ...],
        group: Group | None,
        line: int,
        asked: frozenset[int] = NO_BATCHES,
    ) -> Call:
        at = len(self._recorder.ops)
        op = self._recorder.write_call(name, results, line, used, layer, args, asked)
        self.run.act(self._rank)
        return Call(self._rank, at, op.start, None, op, group, tuple(parts))

    def _handle(self, call: Call, listed: bool = False) -> Handle:
        handle = self._recorder.handles[call.at] = Handle(self, call, listed)
        return handle

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
            wait = CallWait(self._rank, recorder.clock, line, call, self.run.lanes)
            yield from self._together(wait, self.run.ended, _nothing).__await__()
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

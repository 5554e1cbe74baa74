"""Records one rank's operations while it performs them: the live half of a trace."""

import sys
from collections.abc import Callable, Coroutine, Sequence
from functools import lru_cache
from types import FrameType
from typing import Any

from lib.communication.calls import Call
from lib.errors import PuzzleError, RuleError
from lib.game.setting import Game
from lib.rules.operations import require_cuttable
from lib.trace.lifetimes import lifetimes
from lib.trace.ops import NO_BATCHES, Op, call_text, place_text
from lib.values.base import V, Value, copy_of, object_text, set_number, set_recorder
from lib.values.kinds import Parked

from .waits import Wait
from .words import SAYS

new_op = tuple.__new__
"""What Op(...) does, in half of its time."""


_lines: dict[tuple[bytes, int, int], int] = {}
"""The line by line table, first line and instruction. Python reads the full table on each request."""


@lru_cache
def _is_ours(package: str | None) -> bool:
    return (package or "").partition(".")[0] == "lib"


def player_line(depth: int = 1) -> int:
    """The line being executed outside this library; 0 if that is the event loop's, as for the library's own schedules.
    The caller is at least `depth` calls below the player's code."""
    frame: FrameType | None = sys._getframe(depth + 1)
    while frame is not None and _is_ours(frame.f_globals.get("__package__")):
        frame = frame.f_back
    if frame is None or frame.f_globals.get("__package__") == "asyncio":
        return 0
    code = frame.f_code
    position = code.co_linetable, code.co_firstlineno, frame.f_lasti
    line = _lines.get(position)
    if line is None:
        line = _lines[position] = frame.f_lineno
    return line


def _references(pair: tuple[object, object]) -> int:
    """References to the first of a pair, its own and the interpreter's included."""
    return sys.getrefcount(pair[0])


class RankRecorder:
    """One rank's operations, its clock in ticks, and its stored memory. All recorders of a run share `run`."""

    def __init__(self, rank: int, game: Game, run: object) -> None:
        self.rank = rank
        self.game = game
        self.costs = game.setting.costs
        self.run = run
        self.ops: list[Op] = []
        self.clock = 0
        self.values: list[Any] = []
        """Each value that this rank has made, by number; None while the call that makes it is pending."""
        self.unawaited: tuple[Coroutine[Any, Any, Any], Wait] | None = None
        """A call whose coroutine has not been awaited yet."""
        self.under_way: Wait | None = None
        """The call in which this rank waits for others."""
        self.handles: dict[int, object] = {}
        """Calls that have not been awaited, by the index of their rows."""
        self._given: dict[int, tuple[Value, int]] = {}

    def place(self, call: str) -> str:
        return place_text(self.rank, self.costs.text(self.clock), call)

    def refuse_unawaited(self) -> RuleError | None:
        """The refusal if a call was made without await; returned once."""
        if self.unawaited is None:
            return None
        is_kept = _references(self.unawaited) > _references((object(), None))
        coroutine, wait = self.unawaited
        self.unawaited = None
        coroutine.close()  # Python would warn too; the refusal says it better.
        name = wait.call().partition("(")[0]
        more = "; a rank makes one call at a time, so asyncio.gather cannot start several" if is_kept else ""
        return RuleError(
            SAYS("not awaited", call=wait.call(), line=wait.line, name=name, more=more),
            line=wait.line,
        )

    def claim(self, value: Value) -> int:
        """The number of a value on this rank. A value that no rank of this run has made is recorded as given."""
        try:
            if value._recorder is self:
                return value._number
        except AttributeError:
            raise RuleError(SAYS("no value", got=object_text(value))) from None
        return self._adopt(value)

    def _adopt(self, value: Value) -> int:
        owner = value._recorder
        if isinstance(owner, RankRecorder) and owner.run is self.run:
            raise RuleError(SAYS("value of another rank", value=value, rank=owner.rank, this_rank=self.rank))
        if isinstance(value, Parked):
            raise RuleError(SAYS("value of another Dist", value=value))
        if id(value) not in self._given:
            adopted = copy_of(value)
            self.write("given", (adopted,), args=(copy_of(value),), line=player_line())
            # The value itself is kept too, so that its id cannot be reused.
            self._given[id(value)] = (value, adopted._number)
        return self._given[id(value)][1]

    def claim_all(self, values: Sequence[Value]) -> tuple[int, ...]:
        try:
            return tuple([value._number if value._recorder is self else self._adopt(value) for value in values])
        except AttributeError:
            return tuple([self.claim(value) for value in values])  # which refuses what is no value

    def write(
        self,
        name: str,
        results: Sequence[Value],
        line: int,
        used: tuple[int, ...] = (),
        layer: int | None = None,
        batches: frozenset[int] = NO_BATCHES,
        args: tuple[Any, ...] = (),
        start: int | None = None,
        ticks: int = 0,
    ) -> None:
        """Records an operation that takes `ticks` from `start`, or from now, and moves the clock to its end; the values
        in `results` become this rank's own."""
        if start is None:
            start = self.clock
        self.clock = end = start + ticks
        self.ops.append(new_op(Op, (name, start, end, layer, batches, used, self._own(results), args, line)))

    def write_call(
        self,
        name: str,
        results: int,
        line: int,
        used: tuple[int, ...],
        layer: int | None,
        args: tuple[Any, ...],
        batches: frozenset[int],
    ) -> Op:
        """Records a call that starts now or later, and reserves numbers for its results."""
        first = len(self.values)
        self.values += [None] * results
        numbers = (first,) if results == 1 else tuple(range(first, first + results))
        op = new_op(Op, (name, self.clock, self.clock, layer, batches, used, numbers, args, line))
        self.ops.append(op)
        return op

    def complete(self, call: Call) -> None:
        """Records when a call starts and ends; its results become this rank's own."""
        name, _, _, *more = call.op
        op = self.ops[call.at] = call.op = new_op(Op, (name, call.start, call.end, *more))
        for number, value in zip(op.outputs, call.outputs):
            set_recorder(value, self)
            set_number(value, number)
            self.values[number] = value

    def write_await(self, call: Call, line: int) -> None:
        """Records that a call was awaited, and moves the clock to its end."""
        before = self.clock
        self.clock = after = max(before, call.end)
        self.ops.append(new_op(Op, ("await", before, after, None, NO_BATCHES, call.op.inputs, (), (call.at,), line)))

    def _own(self, results: Sequence[Value]) -> tuple[int, ...]:
        first = number = len(self.values)
        for value in results:
            set_recorder(value, self)
            set_number(value, number)
            number += 1
        self.values += results
        return (first,) if number == first + 1 else tuple(range(first, number))

    def derive(self, name: str, operands: Sequence[Value], args: tuple[int, ...], rule: Callable[[], V]) -> V:
        """An operation on values that needs no model (`+`, `combine`, `shard`)."""
        line = player_line(3)
        try:
            if name == "shard":
                require_cuttable(self.game, operands[0])
            result = rule()
            used = self.claim_all(operands)
        except PuzzleError as why:
            raise why.at(self.place(call_text(name)), line) from None
        self.write(name, (result,), line, used, args=args)
        return result

    def store(self, where: str, key: object, value: Value) -> None:
        """Records that a value is stored under a key, replacing its content."""
        number = value._number if value._recorder is self else self.claim(value)
        clock = self.clock
        self.ops.append(new_op(Op, ("store", clock, clock, None, NO_BATCHES, (number,), (), (where, key), 0)))

    def delete(self, where: str, key: object) -> None:
        clock = self.clock
        self.ops.append(new_op(Op, ("delete", clock, clock, None, NO_BATCHES, (), (), (where, key), 0)))

    def memory_at(self) -> list[int]:
        """Elements stored at the start of each event and, last, now; a value under two keys counts once."""
        lives = lifetimes(self.ops)
        return lives.sampled(
            lives.stored, {number: self.values[number].memory(self.costs) for number, _, _ in lives.stored}
        )

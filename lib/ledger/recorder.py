"""Records one rank's operations and its dictionaries while it performs them: the live half of a trace.

The record holds numbers of values, not the values: what a rank made n-th is its value n. The line of a call is read
from the player's frame, which is cheaper than a traceback, and needs no help from the player.

This module decides whose a value is and under which keys it may be stored. It believes what `rank` has checked; the
referee believes none of it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from operator import index
from types import FrameType
from typing import Any, Generic, NoReturn, TypeVar

from lib.errors import PuzzleError, RuleError, Sentences
from lib.ledger.algebra import order_hint
from lib.ledger.lifetimes import lifetimes
from lib.ledger.meetings import Call
from lib.ledger.operations import require_cuttable
from lib.ledger.setting import Game
from lib.ledger.trace import NO_BATCHES, Op, call_text, place_text
from lib.ledger.values import (
    HOLDS,
    HOLDS_TOO,
    Activation,
    ActivationGrad,
    Parked,
    V,
    Value,
    Weight,
    object_text,
    set_number,
    set_recorder,
)

from .waits import Wait

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

    def refuse_unawaited(self) -> RuleError:
        """The refusal of a call that was made without await; returned once."""
        assert self.unawaited is not None
        is_kept = _references(self.unawaited) > _references((object(), None))
        coroutine, wait = self.unawaited
        self.unawaited = None
        coroutine.close()  # Python would warn too; the refusal says it better.
        name = wait.call().partition("(")[0]
        more = "; a rank makes one call at a time, so asyncio.gather cannot start several" if is_kept else ""
        return RuleError(SAYS("not awaited", call=wait.call(), line=wait.line, name=name, more=more), line=wait.line)

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
            adopted = value.copied()
            self.write("given", (adopted,), args=(value.copied(),), line=player_line())
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

    def unsent(self, own: bool) -> Value | None:
        """The first activation or gradient of an activation that this rank has computed, and neither used nor sent. It
        is for a layer of which this rank has no weight, unless what is for its `own` layers counts too."""
        loaded = () if own else {op.layer for op in self.ops if op.name == "load_weights"}
        used = {number for op in self.ops if op.name != "store" for number in op.inputs}
        computed = (n for op in self.ops if op.name not in ("get_activation", "receive", "given") for n in op.outputs)
        unused = (self.values[number] for number in computed if number not in used)
        activations = (value for value in unused if isinstance(value, Activation | ActivationGrad))
        to_send = (value for value in activations if 0 <= value.layer < self.game.layers)  # others are for nobody
        return next((value for value in to_send if value.layer not in loaded), None)

    def memory_at(self) -> list[int]:
        """Elements stored at the start of each event and, last, now; a value under two keys counts once."""
        lives = lifetimes(self.ops)
        return lives.sampled(
            lives.stored, {number: self.values[number].memory(self.costs) for number, _, _ in lives.stored}
        )


# --- The dictionaries of a device: each holds values of one kind ---

K = TypeVar("K", bound=Value)

_MISSING: Any = object()

PLAIN = frozenset((int, str))
"""The types of most keys, which are recorded as they are."""

_put, _drop = dict.__setitem__, dict.__delitem__  # half of the time of super()


class Storage(dict[Any, K], Generic[K]):
    """A dictionary of one rank's values. Keys are numbers, strings, or tuples of these.

    Storing anything but a value of its kind raises a RuleError at once, such as a coroutine, a tuple or another rank's
    value.
    """

    def __init__(self, recorder: RankRecorder, name: str, kind: type[K]) -> None:
        super().__init__()
        self._recorder = recorder
        self.name = name
        self._kind = kind
        self._removed: dict[Any, int] = {}
        """By key that was removed: the line that did it last."""

    def __setitem__(self, key: Any, value: K) -> None:
        try:
            if type(value) is not self._kind and HOLDS_TOO.get(type(value)) != self.name:
                self._refuse(value)
            self._recorder.store(self.name, key if type(key) in PLAIN else plain_key(key), value)
        except PuzzleError as why:
            raise why.at(self._recorder.place(f"{self.name}[{_key_text(key)}] = ..."), player_line()) from None
        _put(self, key, value)

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            self._absent(key, "remove it once only")
        self._removed[key] = player_line()
        self._recorder.delete(self.name, key if type(key) in PLAIN else plain_key(key))
        _drop(self, key)

    def __missing__(self, key: Any) -> NoReturn:
        self._absent(key)

    def __repr__(self) -> str:
        """The values as messages name them: '{0: weight of layer 0}'."""
        return "{" + ", ".join(f"{key!r}: {value}" for key, value in self.items()) + "}"

    def pop(self, key: Any, default: Any = _MISSING) -> Any:
        if key not in self and default is not _MISSING:
            return default
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[Any, K]:
        if not self:
            self._absent("anything")
        key = next(reversed(self))
        return key, self.pop(key)

    def clear(self) -> None:
        for key in list(self):
            del self[key]

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        for key, value in dict(*others, **named).items():
            self[key] = value

    def __ior__(self, other: Any) -> Storage[K]:  # type: ignore[override, misc]  # dict's is overloaded
        self.update(other)
        return self

    def _refuse(self, value: object) -> NoReturn:
        close = getattr(value, "close", None)
        if close is not None and hasattr(value, "__await__"):
            close()  # Python would warn too; the refusal says it better.
        hint = "; backward of an embedding returns None, since token numbers have no gradient" if value is None else ""
        for name, kind in (*HOLDS.items(), *((name, kind) for kind, name in HOLDS_TOO.items())):
            if type(value) is kind:
                hint = f"; store it in {name}{order_hint(type(value), self._kind)}"
        holds, got = self._kind.kind.partition(" ")[2], object_text(value)
        raise RuleError(SAYS("wrong dictionary", dictionary=self.name, kind=holds, got=got, hint=hint))

    def _absent(self, key: Any, then: str = "remove it after its last use") -> NoReturn:
        removed = self._removed.get(key)
        advice = (
            "store a value under this key first" if removed is None else f"line {removed} removed the value; {then}"
        )
        keys = ", ".join(map(repr, self))
        have = f"has only the key{'s' if len(self) > 1 else ''} {keys}" if keys else "is empty"
        raise NotStoredError(
            SAYS("nothing stored", dictionary=self.name, have=have, advice=advice),
            self._recorder.place(f"{self.name}[{_key_text(key)}]"),
            player_line(),
        )


class FinalWeights(Mapping[int, Weight]):
    """The weights that `set_final_weight` has declared, by layer; read-only."""

    name = "final weights"

    def __init__(self, declared: Mapping[int, Weight]) -> None:
        self._declared = declared

    def __getitem__(self, layer: int) -> Weight:
        return self._declared[layer]

    def __iter__(self) -> Iterator[int]:
        return iter(self._declared)

    def __len__(self) -> int:
        return len(self._declared)

    def __repr__(self) -> str:
        return repr(self._declared)


class NotStoredError(RuleError, KeyError):
    """A key that a dictionary does not have; also a KeyError, as for any dictionary."""

    __str__ = RuleError.__str__


def plain_key(key: object) -> Any:
    """The key as it is recorded, with plain Python numbers and strings."""
    if isinstance(key, tuple):
        return tuple(plain_key(part) for part in key)
    if key is None or isinstance(key, str) or (isinstance(key, float) and isfinite(key)):
        return key
    if not hasattr(key, "__index__"):
        raise RuleError(SAYS("strange key", got=type(key).__name__))
    return index(key)


def _key_text(key: object) -> str:
    try:
        return repr(plain_key(key))
    except RuleError:
        return "..."


SAYS = Sentences(
    {
        "not awaited": "{call} on line {line} was called without await, so it never ran; write 'await model.{name}(...)'{more}",
        "no value": "expected a weight, an activation or another value of the game; got {got}",
        "value of another rank": "the {value} belongs to rank {rank}; rank {this_rank} can get it only by communication: pass_to and receive, or a collective",
        "value of another Dist": "this is the {value} of another Dist; fetch it there",
        "wrong dictionary": "{dictionary} holds {kind}s only; got {got}{hint}",
        "nothing stored": "nothing is stored under this key; {dictionary} {have}; {advice}",
        "strange key": "a key must be a number, a string or a tuple of these; got an object of type {got}",
    }
)

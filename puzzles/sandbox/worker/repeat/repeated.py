"""Repeats a recording on the values of another trial, with the engine's own calls and meters; runs no player's code.

All contents are in blocks that the recording holds, and their bytes are charged to the meter from the moment when it
holds them. So a recording cannot use memory that is not counted.
"""

from typing import Any

import numpy as np

from lib.engine import ShardedEngine
from lib.engine.engine import Fetch, Reader, Writer
from lib.engine.metering import Life, Meter, MeteredArray, current, plain_view
from lib.engine.transport import CallableInt

from .functions import (
    COMMUNICATION,
    DRAWS,
    FUNCTIONS,
    METHODS,
    TIER,
    UFUNC_METHODS,
    UFUNCS,
    UnrepeatableError,
    arrays_in,
    memory_of,
    require_written,
    root_of,
    whole_numbers_in,
)
from .held_numbers import NUMBER, HeldNumbers
from .recorder import NEAR, WORD
from .traced_numbers import count_numbers

MAX_UNCHARGED = 1 << 13
"""Bytes of numbers that are charged to no device: those of numpy, and those within the steps."""


class Repeated(ShardedEngine):
    """An engine whose methods are the commands of a recording."""

    def __init__(self, recordings: Any) -> None:
        assert self._port.meter is not None
        self._meter = self._port.meter
        self._segments = iter(recordings[self.device_id])
        self._scratch = Meter()
        """Counts the flops of one operation after the other."""
        self._charged: dict[int, Life] = {}
        self._contents: dict[int, Any] = {}
        """Of blocks: their bytes. Of numbers and transfers: themselves."""
        self._arrived: dict[int, Any] = {}
        """Content that waits for the block that is charged for it."""
        self._in_transfer: dict[int, int] = {}
        """By the block that is charged for an array: the transfer that brings it."""
        self._waiting: list[Any] = []
        """Arrays of an argument that are not in their blocks yet, the last one first."""
        self._whole_numbers: list[int] = []
        """Of an argument."""
        self._lent: set[int] = set()
        self._uncharged = 0
        self._numbers = HeldNumbers(self._meter, recordings[self.device_id])
        self._repeat()

    def _repeat(self, *argument: Any) -> Any:
        before, current.meter = current.meter, None
        self._whole_numbers = whole_numbers_in(argument)
        given = [plain_view(array) for tree in argument for array in arrays_in(tree)]
        is_lent = bool(given) and not given[0].flags.writeable
        self._waiting = (given if is_lent else [array.copy() for array in given])[::-1]
        del argument, given
        try:
            with np.errstate(all="ignore"):  # a recording does not say which warnings the class expects
                return self._results(next(self._segments, ()), is_lent)
        finally:
            self._waiting.clear()
            for key in self._lent:
                self._contents.pop(key, None)
            self._lent.clear()
            current.meter = before

    load_checkpoint = forward = backward = _repeat  # type: ignore[assignment]  # any command with any argument

    def inference_loop(self, input_stream: Reader[Any], output_stream: Writer[Any]) -> None:
        self._reader, self._writer = iter(input_stream), output_stream
        self._repeat()

    def _next_input(self) -> list[Any]:
        current.meter = self._meter
        given = next(self._reader, None)
        current.meter = None
        self._whole_numbers = whole_numbers_in(given)
        return [plain_view(array).copy() for array in arrays_in(given)][::-1]

    def __getattr__(self, name: str) -> Any:
        """The puzzle's other methods."""
        if name.startswith("_"):
            raise AttributeError(name)
        return self._repeat

    def _results(self, steps: Any, is_lent: bool) -> Any:
        result = None
        for step in steps:
            if self._arrived and step[0] != "hold":
                raise UnrepeatableError("an array arrives in memory that is not charged")
            if self._waiting and step[0] not in ("hold", "release", "given"):
                raise UnrepeatableError("an argument waits in memory that is not charged")
            match step:
                case ["hold", int(key), int(nbytes)] if nbytes >= 0 and key not in self._charged:
                    self._charged[key] = self._meter.hold(nbytes)
                    if key in self._arrived:
                        self._fill(key, self._arrived.pop(key))
                case ["release", int(key)]:
                    self._meter.release(self._charged.pop(key))
                    self._contents.pop(key, None)
                    self._contents.pop(self._in_transfer.pop(key, 0), None)
                case ["given", int(key)] if self._waiting and is_lent:
                    self._lent.add(key)
                    self._contents[key] = memory_of(root_of(self._waiting.pop())).copy()
                    self._contents[key].flags.writeable = False
                case ["given", int(key)] if self._waiting:
                    self._fill(key, memory_of(root_of(self._waiting.pop())))
                case ["keep", int(key), int(lent)] if lent in self._lent:
                    self._fill(key, self._contents[lent].copy())
                case ["literal", int(key), int(nbytes)]:
                    self._require_room(key, nbytes)
                    self._contents[key] = np.zeros(nbytes, np.uint8)
                case ["literal", int(key), content]:
                    self._fill(key, content)
                case ["inserted", int(key), int(start), int(known)] if start >= 0:
                    self._insert(key, start, self._number(known))
                case ["number", int(key), int(i)] if 0 <= i < len(self._whole_numbers):
                    self._keep(key, self._whole_numbers[i], False)
                case ["do", str(kind), str(name), list(args), dict(kwargs), list(keys)]:
                    self._do(kind, name, args, kwargs, keys)
                case ["read"]:
                    self._waiting = self._next_input()
                case ["write", tree]:
                    self._writer.write(self._read(tree))
                    current.meter = None
                case ["return", tree]:
                    result = self._read(tree)
                case _:
                    raise UnrepeatableError("there is a step that does not exist")
        self._numbers.charge()
        return result

    # --- Memory ---

    def _fill(self, key: int, content: Any) -> None:
        self._require_room(key, content.nbytes)
        self._contents[key] = content

    def _require_room(self, key: int, nbytes: int) -> None:
        if key not in self._charged or nbytes > self._charged[key].nbytes:
            raise UnrepeatableError("an array is larger than the memory that is charged for it")

    def _keep(self, key: int, result: Any, may_wait: bool) -> None:
        """Keeps a result. An array is in a block that is charged for it, or, if it `may_wait`, in the next one."""
        if isinstance(result, np.ndarray):
            content = memory_of(root_of(result))
            if may_wait and key not in self._charged:
                self._arrived[key] = content
            else:
                self._fill(key, content)
            return
        self._contents[key] = result
        if isinstance(result, np.generic | int):
            self._use(self._numbers.hold(key, result))

    def _number(self, key: int) -> Any:
        """What was kept under a key. A number is let go after its last use."""
        if key not in self._contents:
            raise UnrepeatableError("it reads numbers that it does not have")
        self._numbers.read(key)
        return self._contents[key]

    def _insert(self, key: int, start: int, number: Any) -> None:
        content = self._contents.get(key)
        if not isinstance(number, int | np.integer):
            raise UnrepeatableError("it reads numbers that it does not have")
        if not isinstance(content, np.ndarray) or start + WORD > content.nbytes or not 0 <= number < 1 << 8 * WORD:
            raise UnrepeatableError("it reads memory that it does not have")
        content[start : start + WORD] = np.array([number], np.uint32).view(np.uint8)

    def _use(self, uncharged: int) -> None:
        self._uncharged += uncharged
        if self._uncharged > MAX_UNCHARGED:
            raise UnrepeatableError(f"it computes with more than {MAX_UNCHARGED:,} B of numbers outside of arrays")

    # --- Operations ---

    def _do(self, kind: str, name: str, args: list[Any], kwargs: dict[str, Any], keys: list[Any]) -> None:
        index = 1 if name in ("__getitem__", "__setitem__") else -1
        given = [self._index(one) if i == index else self._read(one) for i, one in enumerate(args)]
        named = self._read(kwargs)
        require_written(kind, name, given, named)
        is_call = kind in ("communication", "host", "disk", "wait")
        if is_call:
            self._numbers.charge()
        results = (self._communicated if is_call else self._computed)(kind, name, given, named)
        in_transfer = bool(results) and isinstance(results[0], Fetch)
        if len(results) < len(keys) or (in_transfer and len(keys) < 2):
            raise UnrepeatableError("an operation has other results on other values")
        if in_transfer:
            self._in_transfer[keys[1]] = keys[0]
        for key, result in zip(keys, results):
            if key is not None:
                self._keep(key, result, is_call and kind != "wait")

    def _computed(self, kind: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        function = self._function(kind, name, args)
        before, current.meter = self._scratch.flops, self._scratch
        try:
            result = function(*map(_metered, args), **{key: _metered(value) for key, value in kwargs.items()})
            if kind == "ufunc":
                ufunc, _, method = name.rpartition(".")
                count_numbers(UFUNCS[ufunc], method, args, kwargs, result)
            elif kind == "draw" and type(result) is float:
                result = np.float64(result)  # as it was recorded
            return [plain_view(part) for part in _parts(result)]
        except (TypeError, ValueError, IndexError) as why:
            raise UnrepeatableError(f"{name} fails on other values ({why})") from None
        finally:
            current.meter = None
            self._meter.compute(self._scratch.flops - before)

    def _function(self, kind: str, name: str, args: list[Any]) -> Any:
        base, _, method = name.rpartition(".")
        if kind == "ufunc" and base in UFUNCS and method in UFUNC_METHODS:
            return getattr(UFUNCS[base], method)
        if kind == "numpy" and name in FUNCTIONS:
            return FUNCTIONS[name]
        if kind == "method" and name in METHODS and args and isinstance(args[0], np.ndarray):
            return getattr(MeteredArray, name)
        if kind == "generator" and name == "default_rng":
            return np.random.default_rng
        if kind == "draw" and name in DRAWS and args and isinstance(args[0], np.random.Generator):
            return getattr(np.random.Generator, name)
        raise UnrepeatableError(f"it calls {name}, which the judge does not repeat")

    def _communicated(self, kind: str, name: str, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The result of a call of the engine. Its memory is the device's from the step that holds it; an array in
        transfer has memory, too, but no content yet."""
        if kind == "wait" and len(args) == 1 and isinstance(args[0], Fetch):
            result = args[0].wait()
        elif kind == "communication" and name in COMMUNICATION:
            result = getattr(ShardedEngine, name)(self, *args, **kwargs)
        elif kind in ("host", "disk") and name in TIER:
            result = getattr(getattr(self, kind), name)(*args, **kwargs)
        else:
            raise UnrepeatableError(f"it calls {name}, which the judge does not repeat")
        current.meter = None
        if isinstance(result, Fetch):
            result._array = np.array(plain_view(result._array))
            return [result, np.zeros(result._array.nbytes, np.uint8)]
        if isinstance(result, np.ndarray):
            result = root_of(plain_view(result)) if name == "symmetric" else np.array(plain_view(result))
        return [result]

    def _index(self, one: Any) -> Any:
        """Where an array is read or written: numbers there are no data."""
        return tuple(map(self._read, one[1:])) if isinstance(one, tuple) and one[:1] == ("tuple",) else self._read(one)

    def _read(self, one: Any, is_data: bool = False) -> Any:
        """Recorded data as an argument. Numbers in its lists and tuples are data that no device is charged for."""
        if isinstance(one, tuple):  # a pattern of a sequence matches a list, too, which is data
            return self._read_marked(one)
        match one:
            case list():
                return [self._read(part, True) for part in one]
            case int() | float() if is_data:
                self._use(NUMBER)
            case dict():
                return {key: self._read(value) for key, value in one.items()}
            case np.ndarray() | np.generic():
                self._use(one.nbytes)
        return one

    def _read_marked(self, one: tuple[Any, ...]) -> Any:
        match one:
            case ("view", int(key), int(offset), list(shape), list(strides), str(kind)):
                return self._view(key, offset, shape, strides, np.dtype(kind))
            case ("known", int(key)):
                return self._number(key)
            case ("as", str(kind), int(key)) if np.dtype(kind).kind in "iu":
                return np.array([self._number(key)]).astype(kind)[0]
            case ("plus", int(key), int(more)) if abs(more) < NEAR:
                return int(self._number(key)) + more
            case ("device", int(number)):
                return CallableInt(number)
            case ("slice", start, stop, step):
                return slice(self._read(start), self._read(stop), self._read(step))
            case ("tuple", *parts):
                return tuple([self._read(part, True) for part in parts])
            case ("ellipsis",):
                return Ellipsis
            case ("dtype", str(kind)):
                return np.dtype(kind)
        raise UnrepeatableError("it reads something that does not exist")

    def _view(self, key: int, offset: int, shape: list[int], strides: list[int], dtype: Any) -> Any:
        if dtype.hasobject or key not in self._contents:
            raise UnrepeatableError("it reads memory that it does not have")
        if 0 in shape:
            return np.empty(shape, dtype)
        try:
            return np.ndarray(tuple(shape), dtype, self._contents[key], offset, tuple(strides))
        except (TypeError, ValueError):
            raise UnrepeatableError("it reads memory that it does not have") from None


def _metered(one: Any) -> Any:
    """An argument whose products are counted."""
    if isinstance(one, np.ndarray):
        return one.view(MeteredArray)
    return type(one)(map(_metered, one)) if type(one) in (list, tuple) else one


def _parts(result: Any) -> list[Any]:
    if isinstance(result, list | tuple):
        return [found for part in result for found in _parts(part)]
    is_recorded = isinstance(result, np.ndarray | np.generic | np.random.Generator) or type(result) is int
    return [result] if is_recorded else []

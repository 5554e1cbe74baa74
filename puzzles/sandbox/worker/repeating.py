"""Repeats a recording on the values of another trial, with the engine's own calls and meters; runs no player's code.

The recording may be forged. If its operations lead to the right results on values that nobody could know, it is a
program for the puzzle, and what is counted of it here is what that program needs: a forged recording that passes is a
correct solution. So a recording may name only what is listed here: functions of numpy without input, output or
callbacks, methods of arrays, draws, and calls of the engine.

All contents are in blocks that the recording holds, and their bytes are charged to the meter from the moment when it
holds them. Numbers outside of arrays are charged too: a recording does not say when a number is let go, because no
recorder sees who still refers to it, so it counts from the step that makes it to the last one that reads it.

Rejected: believing the meters of the process that ran the class, since its code shares their memory. A process for each
device with a wire that the judge carries, which was the design before: it stopped sharing between devices, which gains
nothing here, and it could not run in the page.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lib.engine import ShardedEngine
from lib.engine.engine import Fetch, Reader, Writer
from lib.engine.metering import Life, Meter, MeteredArray, bases_of, count_ufunc, current, plain_view
from lib.engine.transport import CallableInt

# --- What a recording may name ---


UFUNCS: dict[str, Any] = {name: found for name, found in vars(np).items() if isinstance(found, np.ufunc)}

UFUNC_METHODS = ("__call__", "reduce", "accumulate", "reduceat", "outer", "at")

_NAMES = (
    "all amax amin any append argmax argmin argpartition argsort argwhere around array array_split asarray "
    "ascontiguousarray asfortranarray atleast_1d atleast_2d atleast_3d average bincount block broadcast_arrays "
    "broadcast_to choose clip column_stack compress concatenate convolve copy copyto corrcoef correlate count_nonzero "
    "cov cross cumprod cumsum cumulative_sum delete diag diag_indices_from diagflat diagonal diff digitize dot dsplit "
    "dstack ediff1d einsum empty_like expand_dims extract fill_diagonal flatnonzero flip fliplr flipud full full_like "
    "hsplit hstack identity in1d inner insert interp isclose isin kron lexsort linspace matrix_transpose max mean "
    "median meshgrid min moveaxis nan_to_num nanmax nanmean nanmin nansum nonzero ones_like outer packbits pad "
    "partition percentile permute_dims place prod ptp put put_along_axis putmask quantile ravel repeat require reshape "
    "resize roll rollaxis rot90 round searchsorted select sort split squeeze stack std sum swapaxes take "
    "take_along_axis tensordot tile trace transpose tri tril triu unique unpackbits unstack unwrap vdot vsplit vstack "
    "var where zeros_like"
).split()

FUNCTIONS: dict[str, Any] = {
    **{name: getattr(np, name) for name in _NAMES if hasattr(np, name)},
    **{
        f"{module.__name__.removeprefix('numpy.')}.{name}": getattr(module, name)
        for module in (np.linalg, np.fft)
        for name in module.__all__
        if callable(getattr(module, name)) and not isinstance(getattr(module, name), type)
    },
}

NAME_OF = {id(function): name for name, function in FUNCTIONS.items()}

FUNCTIONS["empty_like"] = np.zeros_like
"""In memory that nothing has written, there may be what another device has left in the repeating process."""

METHODS = (
    "__getitem__ __int__ __setitem__ all any argmax argmin argpartition argsort astype choose clip compress copy "
    "cumprod cumsum diagonal dot fill flatten item max mean min nonzero partition prod ptp put ravel repeat reshape "
    "round searchsorted sort std sum take trace var"
).split()

DRAWS = (
    "bytes choice exponential integers normal permutation permuted random shuffle standard_exponential standard_normal "
    "uniform"
).split()
"""Methods of numpy's generators, which draw by numbers and shapes, or choose from an array."""

COMMUNICATION = ("send receive symmetric send_async barrier all_gather all_reduce reduce_scatter all_to_all").split()

TIER = ("put", "fetch", "fetch_async", "drop")


NEAR = 1 << 12
"""A seed that differs by less from a number that the device was given follows from that."""

WORD = 4
"""Bytes of a large number in an array that no step has made, where it is looked for."""


class UnrepeatableError(Exception):
    """A run that cannot be recorded, or a recording that cannot be repeated; the message is a clause for the player."""


def require_written(kind: str, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuses operations whose result has numbers that nothing has written, as `empty_like` would have."""
    out = kwargs.get("out")
    lacks_out = any(array is None for array in (out if isinstance(out, tuple) else (out,)))
    is_masked = "where" in kwargs and (name == "clip" or (kind == "ufunc" and not name.endswith(".reduce")))
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "")
    if (is_masked and lacks_out) or (name == "pad" and isinstance(mode, str) and mode == "empty"):
        raise UnrepeatableError(f"it reads memory in which {name} has written nothing")


def count_numbers(ufunc: Any, method: str, operands: Any, kwargs: Any, result: Any) -> None:
    """Counts products of numbers, as those of arrays count themselves."""
    if current.meter is not None and not any(isinstance(one, np.ndarray) for one in operands):
        count_ufunc(current.meter, ufunc, method, operands, kwargs, result)


def root_of(array: Any) -> Any:
    *_, root = bases_of(array)
    return root


def memory_of(root: Any) -> Any:
    """The bytes of an array that owns its memory, in the order of memory."""
    plain = np.ndarray.view(root, np.ndarray)
    if plain.dtype.hasobject:
        raise UnrepeatableError("it has arrays of Python objects")
    order = sorted(range(plain.ndim), key=lambda axis: -plain.strides[axis])
    flat = plain.transpose(order)
    if not flat.flags.c_contiguous:
        raise UnrepeatableError("it has arrays in memory with gaps")
    return flat.reshape(-1).view(np.uint8)


def arrays_in(tree: Any) -> list[Any]:
    """The arrays in nested dictionaries, lists and tuples, in order."""
    if isinstance(tree, np.ndarray):
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [array for part in tree for array in arrays_in(part)] if isinstance(tree, list | tuple) else []


def whole_numbers_in(tree: Any) -> list[int]:
    """The whole numbers in nested dictionaries, lists and tuples, in order."""
    if type(tree) is int:
        return [tree]
    if isinstance(tree, dict):
        tree = list(tree.values())
    return [number for part in tree for number in whole_numbers_in(part)] if isinstance(tree, list | tuple) else []


# --- Numbers outside of arrays ---


NUMBER = 8
"""Bytes that a number of Python counts as, and of the one number that a device may use for free between two calls of
the engine."""

MAX_NUMBER = 32
"""Bytes of numpy's longest number. Records and texts of any length, which are scalars, too, are no numbers."""


class HeldNumbers:
    """Those of one device."""

    def __init__(self, meter: Meter, recording: Any) -> None:
        self._meter = meter
        self._uses = Counter(_numbers_read(recording))
        """By the key of a number: how often it is still read."""
        self._lives: dict[int, Life] = {}
        """What is charged, by key."""
        self._free: tuple[int, int] | None = None
        """The number that is not charged yet: its key, and its bytes."""

    def hold(self, key: int, number: Any) -> int:
        """Charges a number if it is still read; returns its bytes."""
        nbytes: int = getattr(number, "nbytes", NUMBER)
        if nbytes > MAX_NUMBER or isinstance(number, np.flexible):
            raise UnrepeatableError("it takes records or texts out of arrays")
        self._let_go(key)
        if not self._uses[key]:
            return nbytes
        if self._free is None and nbytes <= NUMBER:
            self._free = key, nbytes
        else:
            self._lives[key] = self._meter.hold(nbytes)
        return nbytes

    def read(self, key: int) -> None:
        """Called when a step reads a number."""
        self._uses[key] -= 1
        if self._uses[key] <= 0:
            self._let_go(key)

    def charge(self) -> None:
        """Charges the free number, too, because it is kept longer than one computation needs it."""
        if self._free is not None:
            key, nbytes = self._free
            self._lives[key], self._free = self._meter.hold(nbytes), None

    def _let_go(self, key: int) -> None:
        if self._free is not None and self._free[0] == key:
            self._free = None
        elif key in self._lives:
            self._meter.release(self._lives.pop(key))


def _numbers_read(one: Any) -> Iterator[int]:
    """The keys of the numbers that recorded data refer to, as often as they do."""
    match one:
        case [first, *_] if not isinstance(first, str):  # an array would be compared with the words below
            for part in one:
                yield from _numbers_read(part)
        case ("known", int(key)) | ("as", str(), int(key)) | ("plus", int(key), int()) | ["inserted", _, _, int(key)]:
            yield key
        case list() | tuple():
            for part in one:
                yield from _numbers_read(part)
        case dict():
            for part in one.values():
                yield from _numbers_read(part)


# --- The second run ---


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

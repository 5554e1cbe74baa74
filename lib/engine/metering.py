"""Meters: bytes, flops, live memory and simulated time of one device, counted on unmodified player code.

A device's arrays are of a subclass of numpy's, which passes each operation to us, so products and new blocks of memory
are counted by their shapes. For a run, the functions of numpy that make plain arrays are replaced. Tracing the
allocator (tracemalloc) would also count numpy's temporary memory, which differs between versions; counting by time or
by hardware counters would differ from run to run.

What a call sends is left to `collectives`, and the flops of a function to `flops`.
"""

import functools
import os
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from types import FrameType
from typing import Any

import numpy as np
from numpy import float32, float64, inexact, ndarray, void

from lib.engine import flops
from lib.engine.collectives import COLLECTIVES, Array
from lib.errors import RuleError, is_masked

# --- Finds the line of the player's code that is running ---

MACHINERY = ("lib", "drawing", "puzzles", "numpy", "torch", "array_api_compat")
"""Packages whose lines are not a player's."""

CALLERS = ("lib.engine.devices", "lib.engine.process_devices")
"""The modules that call a device's code."""


@cache
def _is_machinery(module: str) -> bool:
    return module.partition(".")[0] in MACHINERY


def is_of_player(frame: FrameType) -> bool:
    """True if a frame is not of the engine or a library."""
    return not _is_machinery(frame.f_globals.get("__name__", ""))


def player_frame(frame: FrameType | None) -> FrameType | None:
    """The innermost frame of the player's code, from `frame` outwards."""
    while frame is not None and not is_of_player(frame):
        frame = frame.f_back
    return frame


def running_line() -> int:
    """The line of the device's code that is running. It is 0 while arguments are made, before the device's code is
    called."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not _is_machinery(module):
            return frame.f_lineno
        frame = None if module in CALLERS else frame.f_back
    return 0


def player_line(frame: FrameType | None) -> str:
    """', line 12 of mine.py' for the innermost frame of the player's code; '' if there is none."""
    frame = player_frame(frame)
    return "" if frame is None else f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"


def current_player_line() -> str:
    return player_line(sys._getframe(1))


# --- Counts the bytes, flops, memory and simulated time of one device ---


def unused_memory() -> dict[str, int]:
    """The figures of a slower memory before its first use."""
    return dict.fromkeys(("read", "written", "live", "peak"), 0)


MAX_NUMBERS_OUT = 1024
"""Floats that a device may take out of arrays for free: maxima, losses, factors of rows."""


@dataclass(frozen=True)
class Reading:
    """A meter's figures at one moment.

    `sent`: bytes, ring-optimal; `unpacked`: the same, if numbers cost what `unpacked_bytes` says.
    `calls`: their number, by kind. `flops`: of products, two for each, as of a multiply-add.
    `live` and `peak`: bytes of arrays. `stored`: the most bytes that were live while this device waited in a receive,
    without what arrived. `clock`, in flops: when this device would finish if only flops and the links to slower
    memories took time, and a message could not be received before it is sent. `host` and `disk`: bytes "read" from this
    memory and "written" to it, bytes that it holds now, "live", and the most it has held, "peak".
    """

    sent: int
    unpacked: int
    calls: Mapping[str, int]
    flops: int
    live: int
    peak: int
    stored: int
    clock: int
    host: Mapping[str, int] = field(default_factory=unused_memory)
    disk: Mapping[str, int] = field(default_factory=unused_memory)
    peak_line: int = 0
    """The line of the player's file that was running when the peak was reached; 0 if none was."""
    held: Mapping[str, int] = field(default_factory=dict)
    """Bytes that were live at the peak, by the line that made them."""
    idle: Mapping[str, int] = field(default_factory=dict)
    """Bytes of `held` that no later operation read."""
    products: Mapping[str, int] = field(default_factory=dict)
    """Flops by the line that computed them."""
    widened_line: int = 0
    """The first line that made float64 arrays of float32 by a number of numpy, such as np.sqrt(16); 0 if none did."""

    @property
    def collectives(self) -> int:
        """Calls that all devices of a group make together, not counting barriers."""
        return sum(n for name, n in self.calls.items() if name in COLLECTIVES)

    @property
    def messages(self) -> int:
        return self.calls.get("send", 0) + self.calls.get("send_async", 0)


class Life:
    """A block: its bytes, the line that made it, and when it was made and last read; time passes when one is made."""

    __slots__ = ("born", "line", "nbytes", "read")

    def __init__(self, nbytes: int, line: int, born: int) -> None:
        self.nbytes, self.line = nbytes, line
        self.born = self.read = born


class Meter:
    """The running figures of one device, named as in `Reading`. `byte_time`: for each slower memory, the flops on the
    clock that a transferred byte takes."""

    def __init__(self, byte_time: Mapping[str, int] | None = None) -> None:
        self.sent = self.unpacked = 0
        self.calls: dict[str, int] = defaultdict(int)
        self.flops = 0
        self.products: dict[int, int] = defaultdict(int)
        """Flops by line."""
        self.scales: set[Any] = set()
        """Python numbers by which this device has scaled arrays."""
        self.numbers_out = 0
        """How many floats this device has converted from arrays to numbers."""
        self.live = 0
        self.peak = 0
        self.peak_line = 0
        self.time = 0
        """How many blocks were made."""
        self._peak_time = 0
        self._blocks: dict[int, Life] = {}
        self._ended: list[Life] = []
        """Blocks that were live at the peak, and are no more."""
        self.widened_line = 0
        self.stored = 0
        self.clock = 0
        self.host = unused_memory()
        self.disk = unused_memory()
        self.byte_time = byte_time or {}
        self.ends: list[tuple[str, int]] = []
        """For each transfer so far: its memory, and the time on the clock at which it ends."""

    def hold(self, nbytes: int) -> Life:
        """Charges a block, until `release`."""
        self.time += 1
        life = Life(nbytes, running_line(), self.time)
        self._blocks[id(life)] = life
        self.live += nbytes
        if self.live > self.peak:
            self.peak, self.peak_line, self._peak_time = self.live, life.line, self.time
            self._ended.clear()
        return life

    def release(self, life: Life) -> None:
        self.live -= life.nbytes
        del self._blocks[id(life)]
        if life.born <= self._peak_time:
            self._ended.append(life)

    def at_peak(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The bytes that are live at the peak, by the line that made them, and the bytes of these that no later
        operation reads. Blocks that the operation at the peak, or the one before it, may read count as read."""
        live, idle = Counter[str](), Counter[str]()
        for life in (*self._ended, *self._blocks.values()):
            if life.born <= self._peak_time:
                live[str(life.line)] += life.nbytes
                if life.read < self._peak_time - 1:
                    idle[str(life.line)] += life.nbytes
        return dict(live), dict(idle)

    def compute(self, flops: int) -> None:
        self.flops += flops
        self.clock += flops
        self.products[running_line()] += flops

    def multiply(self, flops: int) -> None:
        if flops:
            self.compute(flops)

    def take_out(self, count: int) -> None:
        """Counts floats that leave arrays as numbers. What is computed with them is not seen, so after the first
        `MAX_NUMBERS_OUT` each counts as one operation."""
        self.numbers_out += count
        self.multiply(max(0, min(count, self.numbers_out - MAX_NUMBERS_OUT)))

    def within_kernel(self) -> "Meter":
        """A meter of what the device computes in a fused kernel, whose memory is not charged to it."""
        return KernelMeter()

    def transfer(self, memory: str, nbytes: int) -> int:
        """Queues a transfer on the link to a slower memory; returns its number, for `wait_for`."""
        free_at = next((end for kind, end in reversed(self.ends) if kind == memory), 0)
        self.ends.append((memory, max(free_at, self.clock) + nbytes * self.byte_time.get(memory, 0)))
        return len(self.ends) - 1

    def wait_for(self, transfer: int) -> None:
        """Advances the clock to the end of a transfer, unless that has passed."""
        self.clock = max(self.clock, self.ends[transfer][1])

    def communicate(self, name: str, traffic: tuple[int, int] = (0, 0)) -> None:
        """Counts one call and the bytes that it sends, with numbers as they are and unpacked."""
        self.calls[name] += 1
        self.sent += traffic[0]
        self.unpacked += traffic[1]

    def widen(self) -> None:
        """Called when an operation has made float64 of float32 arrays."""
        self.widened_line = self.widened_line or running_line()

    def record_stored(self) -> None:
        """Called when a message has arrived and is not charged yet, so that all live bytes were stored during the
        wait."""
        if self.live > self.stored:
            self.stored = self.live

    def reading(self) -> Reading:
        calls = dict(sorted(self.calls.items()))
        slower = dict(self.host), dict(self.disk)
        return Reading(
            *(self.sent, self.unpacked, calls, self.flops, self.live, self.peak, self.stored, self.clock),
            *slower,
            self.peak_line,
            *self.at_peak(),
            {str(line): flops for line, flops in self.products.items()},
            self.widened_line,
        )


class KernelMeter(Meter):
    """Counts matrix products only, as plans predict them: a compiler fuses other products into neighbouring
    operations."""

    def multiply(self, flops: int) -> None:
        """Counts nothing."""


class Current(threading.local):
    """The meter of the device whose code is running in this thread, or None. New arrays and flops are charged to it.

    A thread that runs no devices, such as one that a player starts, is charged to the device of the newest thread that
    does.
    """

    meter: Meter | None

    def __getattr__(self, name: str) -> Meter | None:
        """Called in a thread that has never set `meter`."""
        return _newest[0].get(name)

    def run_here(self) -> None:
        """Called by a thread that is about to run devices."""
        self.meter = None
        _newest[0] = self.__dict__


_newest: list[dict[str, Meter | None]] = [{}]


current = Current()


@contextmanager
def unmetered() -> Iterator[None]:
    """A context in which nothing is charged to any device."""
    before, current.meter = current.meter, None
    try:
        yield
    finally:
        current.meter = before


# --- An ndarray subclass that meters unmodified player code: it counts flops and live bytes ---
#
# numpy passes every operation on a subclass to its `__array_ufunc__` or `__array_function__` (NEP 13 and 18). Products
# are counted by their shapes, and each new block of memory is charged to the device until nothing refers to it. Views
# share their block, which counts once. Arrays that start as plain ones (np.zeros and the like) are handled by
# `patched_numpy`. This costs a few microseconds per call.


class ChargedBlock:
    """A block of memory, charged to a meter for as long as this object lives."""

    __slots__ = ("__weakref__", "_life", "_meter")
    _life: Life | None

    def __init__(self, meter: Meter, nbytes: int) -> None:
        self._meter = meter
        self._life = meter.hold(nbytes)

    def touch(self) -> None:
        """Called when an operation reads the block."""
        life = self._life
        if life is not None:
            life.read = self._meter.time

    def __del__(self) -> None:
        if self._life is not None:
            self._meter.release(self._life)


class LentBlock(ChargedBlock):
    """A block that belongs to no device until `charge` charges it."""

    __slots__ = ("_nbytes",)

    def __init__(self, meter: Meter, nbytes: int) -> None:
        self._meter = meter
        self._life = None
        self._nbytes = nbytes

    def charge(self) -> None:
        if self._life is None:
            self._life = self._meter.hold(self._nbytes)


_base_of: Any = ndarray.base.__get__
_view: Any = ndarray.view
"""The attributes of numpy's own class; `MeteredArray` overrides them."""


def _is_widened(inputs: list[Any]) -> bool:
    """True for an array of float32 and a number of numpy in float64, whose result is twice as large as the array. A
    number of Python leaves the array as it is."""
    return any(isinstance(x, float64) for x in inputs) and any(getattr(x, "dtype", None) == float32 for x in inputs)


class MeteredArray(ndarray[Any, Any]):
    """An array of a device, whose memory and products are counted."""

    __slots__ = ("_block", "_is_base")
    _block: ChargedBlock | None
    _is_base: bool

    def __array_finalize__(self, source: Any) -> None:
        base = _base_of(self)
        # Indexing with a list gives a view of a new plain array, whose block is also new.
        if base is None or (type(base) is ndarray and base is not source and base is not source.base):
            meter = current.meter
            self._block = None if meter is None else ChargedBlock(meter, self.nbytes)
        else:
            self._block = source._block if type(source) is MeteredArray else None
        if base is None and type(source) is MeteredArray and source._block is not None:
            source._block.touch()  # this is a copy

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        if out is not None:
            kwargs["out"] = tuple([plain_view(array) for array in out])
        if type(kwargs.get("where")) is MeteredArray:
            kwargs["where"] = plain_view(kwargs["where"])
        bare = [plain_view(array) for array in inputs]
        result = getattr(ufunc, method)(*bare, **kwargs)
        meter = current.meter
        if meter is not None:
            count_ufunc(meter, ufunc, method, bare, kwargs, result)
        if out is not None:
            return out[0] if len(out) == 1 else out
        if type(result) is ndarray:
            if meter is not None and result.dtype == float64 and _is_widened(bare):
                meter.widen()
            return result if meter is None else as_metered_result(result, meter)
        return tuple([charge_results(part) for part in result]) if isinstance(result, tuple) else result

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        count = flops.FLOPS_OF_FUNCTION.get(function)
        if count is None:
            touch_all(args)
            return charge_results(super().__array_function__(function, types, args, kwargs))
        return metered_product(function, count, args, kwargs)

    def dot(self, other: Any, out: Any = None) -> Any:
        return DOT(self, other, out)

    @property
    def base(self) -> Any:
        """The array that this is a view of, also metered."""
        base = _base_of(self)
        if type(base) is not ndarray:
            return base
        if getattr(self, "_is_base", False):
            return None  # else the bases of an array would never end
        metered: Any = restore_block(base, self)
        metered._is_base = True
        return metered

    def view(self, *given: Any, **named: Any) -> Any:
        """A view stays metered, even if a plain array is requested."""
        plain = _view(self, *given, **named)
        if not isinstance(plain, MeteredArray) and not is_masked(plain) and type(plain) is not ndarray:
            raise RuleError(UNCOUNTED.format(type(plain).__name__))
        return restore_block(plain, self) if type(plain) is ndarray else plain

    def __getitem__(self, place: Any) -> Any:
        return number_out(super().__getitem__(place))

    def __setitem__(self, place: Any, value: Any) -> None:
        super().__setitem__(place, plain_view(value))

    def item(self, *place: Any) -> Any:
        return number_out(super().item(*place))

    def tolist(self) -> Any:
        if self.dtype.kind in "fc" and current.meter is not None:
            current.meter.take_out(self.size)
        return super().tolist()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __repr__(self) -> str:
        return repr(plain_view(self))

    def __reduce__(self) -> Any:
        return plain_view(self).__reduce__()


MAX_SCALAR = 32
"""Bytes of numpy's longest number, and letters of a text that may be taken out of an array."""


def number_out(item: Any) -> Any:
    """Returns what was taken out of an array, and counts it if it is a floating-point number.

    Raises:
        RuleError: it is a record or a long text, so a tensor in disguise.
    """
    if current.meter is None:
        return item
    if isinstance(item, float | complex | inexact):
        current.meter.take_out(1)
    elif isinstance(item, void | tuple) or (isinstance(item, bytes | str) and len(item) > MAX_SCALAR):
        raise RuleError(
            f"a {type(item).__name__} that is taken out of an array holds numbers that no meter charges; keep them in "
            "arrays, and slice these"
        )
    return item


UNCOUNTED = "a device computes with plain arrays, because no meter counts products of {}; use arrays, @ and *"

DOT = next(function for function in flops.FLOPS_OF_FUNCTION if function.__name__ == "dot")


def count_ufunc(meter: Meter, ufunc: Any, method: str, operands: Any, kwargs: Any, result: Any) -> None:
    """Counts the flops of a call of a ufunc with plain arrays and numbers."""
    products = flops.real_products(operands[0] if result is None else result)
    if ufunc in flops.FLOPS_OF_MATMUL:
        meter.compute(products * flops.FLOPS_OF_MATMUL[ufunc](operands, kwargs, result))
    elif ufunc in flops.ELEMENTWISE:
        meter.multiply(products * flops.elementwise(ufunc, method, operands, result, meter.scales))
    elif ufunc not in flops.OTHER_UFUNCS:  # a function of Python, by np.vectorize or np.frompyfunc
        meter.multiply(flops.outer(operands, kwargs, result))


def metered_product(function: Any, count: Any, args: Any, kwargs: Any) -> Any:
    """Calls a numpy function that multiplies matrices, and counts its flops with the rule `count`."""
    out = kwargs.get("out")
    bare = [plain_view(array) for array in args]
    result = function(*bare, **{name: plain_view(value) for name, value in kwargs.items()})
    if current.meter is not None:
        products = 1 if count is flops.fourier else flops.real_products(result)
        current.meter.compute(products * count(flops.operands_of(bare, kwargs), kwargs, result))
    if out is None and args and any(result is array for array in bare):
        return next(array for array, plain in zip(args, bare) if result is plain)  # `out` as the third argument
    return charge_results(result) if out is None else out


def plain_view(array: Any) -> Any:
    """Views a metered array as an ordinary one, and records that its block is read; returns anything else unchanged."""
    if type(array) is not MeteredArray:
        return array
    block = array._block
    if block is not None:
        block.touch()
    return _view(array, ndarray)


def touch_all(args: Any) -> None:
    for arg in args:
        if isinstance(arg, list | tuple):
            touch_all(arg)
        else:
            plain_view(arg)


def as_metered_result(array: Array, meter: Meter) -> Array:
    """Charges the result of a numpy operation to `meter`; a view stays with its block."""
    block = block_of(array) if array.base is not None else ChargedBlock(meter, array.nbytes)
    counted = array.view(MeteredArray)
    counted._block = block
    return counted


def as_metered(array: Array, meter: Meter) -> Array:
    """Charges the whole memory of an array to `meter`, even if it is a view, as of an array that a transport
    delivered."""
    counted = array.view(MeteredArray)
    counted._block = ChargedBlock(meter, array.nbytes)
    return counted


def is_stripped_view(result: Any, given: Any) -> bool:
    """True if `result` is the memory of `given` as a plain array: `asarray` strips the subclass."""
    return (
        isinstance(given, MeteredArray)
        and type(result) is ndarray
        and any(result.base is source for source in (given, _base_of(given)) if source is not None)
    )


def restore_block(result: Array, given: MeteredArray) -> Array:
    """Makes a stripped view metered again, in the block of the array that it is a view of."""
    counted = result.view(MeteredArray)
    counted._block = given._block
    return counted


def lend(array: Array, meter: Meter) -> tuple[Array, LentBlock]:
    """A read-only view of an array that does not belong to the device, and its block, which is not charged yet."""
    block = LentBlock(meter, array.nbytes)
    counted = array.view(MeteredArray)
    counted._block = block
    counted.flags.writeable = False
    return counted, block


def bases_of(array: Any) -> Iterator[Any]:
    """An array, the array that it is a view of, and so on."""
    while isinstance(array, ndarray):
        yield array
        array = _base_of(array)


def address_of(array: Any) -> int:
    """The address of an array's first element."""
    address: int = array.__array_interface__["data"][0]
    return address


def block_of(array: Any) -> ChargedBlock | None:
    """The block that an array is a view of; None if it belongs to no device."""
    return next((a._block for a in bases_of(array) if isinstance(a, MeteredArray) and a._block is not None), None)


def charge_results(result: Any) -> Any:
    """Charges the new plain arrays in a numpy result, also inside lists and tuples, to the running device."""
    meter = current.meter
    if meter is None:
        return result
    if type(result) is ndarray:
        return as_metered_result(result, meter)
    if type(result) is list or type(result) is tuple:
        return type(result)([charge_results(part) for part in result])
    return result


# --- Patches numpy constructors and matmuls during a metered run to count memory and flops ---
#
# Only the code of a device is counted. For all other code (`current.meter` is None), the wrappers just call the
# original function.

CONSTRUCTORS = (
    "zeros ones empty full array asarray ascontiguousarray asfortranarray copy arange linspace eye identity tri "
    "diag frombuffer fromiter fromfunction indices zeros_like ones_like empty_like full_like require"
).split()
"""Functions whose result can be a new plain array even if no argument is metered."""


def _charging(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def make(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if current.meter is None or any(result is arg for arg in args):
            return result
        given: Any = args[0] if args else kwargs.get("a")
        return restore_block(result, given) if is_stripped_view(result, given) else charge_results(result)

    return make


def _counting(function: Callable[..., Any], count: Any) -> Callable[..., Any]:
    """The wrapper of a function that multiplies matrices; `count` is the rule for its flops."""

    @functools.wraps(function)
    def multiply(*args: Any, **kwargs: Any) -> Any:
        if current.meter is None:
            return function(*args, **kwargs)
        return metered_product(function, count, args, kwargs)

    return multiply


class MeteredGenerator(np.random.Generator):
    """A random generator whose arrays are charged to the device."""

    def __getattribute__(self, name: str) -> Any:
        attribute = super().__getattribute__(name)
        return _charging(attribute) if callable(attribute) and not name.startswith("_") else attribute


def _default_rng(seed: Any = None) -> np.random.Generator:
    meter, current.meter = current.meter, None  # memory used for seeding is not the device's
    try:
        generator = _RNG(seed)
    finally:
        current.meter = meter
    return generator if meter is None else MeteredGenerator(generator.bit_generator)


_RNG = np.random.default_rng

RANDOM_STAND_INS = {
    **{
        name: (function, _charging(function))
        for name, function in vars(np.random).items()
        if getattr(function, "__self__", None).__class__ is np.random.RandomState and not name.endswith("_state")
    },
    "default_rng": (_RNG, _default_rng),
}
"""By name in numpy.random: the function, and its wrapper."""

STAND_INS = {
    **{name: (getattr(np, name), _charging(getattr(np, name))) for name in CONSTRUCTORS},
    **{f.__name__: (f, _counting(f, count)) for f, count in flops.FLOPS_OF_NAMED.items()},
    **{f.__name__: (f, _counting(f, count)) for f, count in flops.FLOPS_OF_MATMUL.items()},
}
"""By name in numpy: the function, and its wrapper."""

_depths: Counter[int] = Counter()
"""The number of open contexts, by the id of the module's globals; numpy's own globals are in every context."""

_lock = threading.Lock()
"""Held while names are swapped, because runs in several threads have separate contexts."""


@contextmanager
def patched_numpy(cls: type, metered: bool) -> Iterator[None]:
    """A context in which numpy's functions count, even where the module of a player's class has imported them by name.
    Contexts nest, and may be open in several threads. Without `metered` this does nothing."""
    if not metered:
        yield
        return
    modules = [vars(np), *_modules_of(cls)]
    _open_or_close(modules, +1)
    try:
        yield
    finally:
        _open_or_close(modules, -1)


def _open_or_close(modules: Sequence[dict[str, Any]], change: int) -> None:
    """Swaps the functions of each module when its first context opens, and back when the last one closes."""
    old, new = (0, 1) if change > 0 else (1, 0)
    with _lock:
        for names in modules:
            before = _depths[id(names)]
            _depths[id(names)] += change
            if 0 in (before, before + change):
                _swap(old, new) if names is vars(np) else _swap_imported(names, old, new)


def _swap(old: int, new: int) -> None:
    for names, stand_ins in ((vars(np), STAND_INS), (vars(np.random), RANDOM_STAND_INS)):
        for name, pair in stand_ins.items():
            if names.get(name) is pair[old]:
                names[name] = pair[new]


def _swap_imported(names: dict[str, Any], old: int, new: int) -> None:
    by_id = {id(pair[old]): pair[new] for pair in (*STAND_INS.values(), *RANDOM_STAND_INS.values())}
    for name, value in list(names.items()):
        if id(value) in by_id:
            names[name] = by_id[id(value)]


def _modules_of(cls: type) -> list[dict[str, Any]]:
    """The globals of the modules that define a class and its ancestors, except modules of the engine and of Python."""
    modules: dict[int, dict[str, Any]] = {}
    for ancestor in cls.__mro__:
        if ancestor.__module__.startswith("lib.engine.") or ancestor.__module__ in sys.stdlib_module_names:
            continue
        for function in vars(ancestor).values():
            names = getattr(function, "__globals__", None)
            if names is not None:
                modules[id(names)] = names
    return list(modules.values())


# --- A computation that counts as one kernel of a device: its flops and its result, but no memory in between ---


def run_kernel(compute: Callable[[], Array]) -> Array:
    """The result of a computation, in new memory. The meter counts flops and this memory, as if the computation were
    fused: numpy's intermediate arrays differ between versions, and a compiled kernel has none."""
    meter = current.meter
    if meter is None:
        return compute()
    current.meter = scratch = meter.within_kernel()
    try:
        result = compute()
    finally:
        current.meter = meter
    meter.compute(scratch.flops)
    return np.array(result)

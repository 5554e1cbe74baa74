"""Runs a class with all devices in this process, and records what each device does with its arrays, as data.

A recording has one list of steps for each command, and `repeating` runs it on other values. Blocks of memory and
numbers have keys: a step names the part of a block that an operation reads or writes, so views need no steps. Whatever
no step has made, such as zeros or numbers that the player's code has computed outside of arrays, is recorded as a
literal: it stays as it is when the other values come. A large whole number, such as a seed, is known by its value:
Python's own numbers have no identity, and where a device makes an array of it, the literal says at which bytes it
stands.

Functions of numpy, methods of arrays and calls of the engine are wrapped once, and tell the recorder of the device that
runs. A run that cannot be recorded has right results and unknown figures; it does not fail. Rejected: tracing the
player's Python, which would have to know what every function of numpy does with memory.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from lib.engine import ShardedEngine, metering
from lib.engine.devices import NO_ARGUMENT, Device, InProcessExecutor, InputStream, LentParameters, OutputStream
from lib.engine.engine import Fetch, MemoryTier
from lib.engine.inprocess import InProcessPort, Scheduler
from lib.engine.metering import (
    ChargedBlock,
    Life,
    Meter,
    MeteredArray,
    address_of,
    block_of,
    current,
    patched_numpy,
    running_line,
)
from lib.engine.transport import CallableInt

from .repeating import (
    COMMUNICATION,
    DRAWS,
    METHODS,
    NAME_OF,
    NEAR,
    TIER,
    WORD,
    UnrepeatableError,
    arrays_in,
    count_numbers,
    memory_of,
    root_of,
    whole_numbers_in,
)

# --- The meter of a device that records, which knows the recorder ---


class RecordingMeter(Meter):
    """Counts as every meter does, for the lines of code at a peak; figures are those of the second run."""

    def __init__(self, recorder: DeviceRecorder, byte_time: Mapping[str, int] | None = None) -> None:
        super().__init__(byte_time)
        self.recorder = recorder

    def hold(self, nbytes: int) -> Life:
        life = super().hold(nbytes)
        self.recorder.hold(life)
        return life

    def release(self, life: Life) -> None:
        super().release(life)
        self.recorder.release(life)

    def within_kernel(self) -> Meter:
        """Records, too, and counts as the second run does, which knows no kernels."""
        meter = RecordingMeter(self.recorder)
        meter.scales = self.scales
        return meter


def recorder_here() -> Any:
    """The recorder of the device whose code runs, if that has begun a command; else None."""
    meter = current.meter
    return meter.recorder if isinstance(meter, RecordingMeter) and meter.recorder.segments else None


# --- Floats of numpy that stay known: what is computed with them is recorded as what is done with arrays ---


def _traced_ufunc(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """What numpy makes of a traced number is recorded, too."""

    def call(*inputs: Any, **kwargs: Any) -> Any:
        bare = [_untraced(one) for one in inputs]
        result = getattr(ufunc, method)(*bare, **kwargs)
        count_numbers(ufunc, method, bare, kwargs, result)
        return result

    recorder = recorder_here()
    if recorder is None:
        return call(*inputs, **kwargs)
    return recorder.perform("ufunc", f"{ufunc.__name__}.{method}", call, (), inputs, kwargs)


def _traced_type(kind: Any) -> Any:
    """A subclass of a type of numpy's floats. A second base would make its dtype object, so it has the operators of the
    mixin as its own."""
    operators = {
        name: value
        for name, value in vars(NDArrayOperatorsMixin).items()
        if callable(value) and not (name.startswith("__i") and name != "__invert__")  # a number cannot change in place
    }
    return type(
        kind.__name__,
        (kind,),
        {**operators, "__slots__": (), "__hash__": kind.__hash__, "__array_ufunc__": _traced_ufunc},
    )


TRACED = {kind: _traced_type(kind) for kind in (np.float16, np.float32, np.float64)}

UNTRACED = {traced: kind for kind, traced in TRACED.items()}


def traced(result: Any) -> Any:
    """A result with traced numbers, also in tuples and lists."""
    if type(result) in (list, tuple):
        return type(result)(map(traced, result))
    return TRACED[type(result)](result) if type(result) in TRACED else result


def _untraced(number: Any) -> Any:
    if type(number) in (list, tuple):
        return type(number)(map(_untraced, number))
    return UNTRACED[type(number)](number) if type(number) in UNTRACED else number


# --- The recorder ---


MAX_STEPS = 20_000
"""Of one device."""

LARGE = 1 << 16
"""A whole number from here on that is equal to one that the device was given is that number."""

MAX_SEARCHED = 1 << 12
"""Bytes of an array in which such numbers are looked for."""

Step = list[Any]


class DeviceRecorder:
    """The recording of one device. `broken` says why there is none, if the run cannot be repeated."""

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self.segments: list[list[Step]] = []
        self.broken = ""
        self._inside = False
        self._keys = 0
        self._lives: dict[int, int] = {}
        """Keys of the blocks that are charged, by the id of their lives."""
        self._lent: WeakKeyDictionary[ChargedBlock, int] = WeakKeyDictionary()
        self._filled: set[int] = set()
        """Keys of blocks whose content a step has stated."""
        self._numbers: dict[int, tuple[int, Any]] = {}
        """Keys of numpy's numbers, of transfers and of generators, by their ids."""
        self._large: dict[int, int] = {}
        """Keys of large whole numbers, by their values."""

    # --- What a device tells ---

    def begin(self) -> None:
        """A command begins. Arrays that the module has made when it was loaded are of the first."""
        if self.segments:
            self._steps = []
        self.segments.append(self._steps)

    def hold(self, life: Life) -> None:
        key = self._lives[id(life)] = self._key()
        self._add(["hold", key, life.nbytes])

    def release(self, life: Life) -> None:
        key = self._lives.pop(id(life), 0)
        self._filled.discard(key)
        self._add(["release", key])

    def given(self, tree: Any, lent: bool) -> None:
        """The arrays of an argument and its large whole numbers, in order."""
        for array in arrays_in(tree):
            block = block_of(array)
            assert block is not None
            if lent:
                self._lent[block] = self._key()
            self._filled.add(key := self._key_of(block))
            self._add(["given", key])
        for i, number in enumerate(whole_numbers_in(tree)):
            if number >= LARGE:
                self._large[number] = self._key()
                self._add(["number", self._large[number], i])

    def returned(self, tree: Any, how: str = "return") -> None:
        """The result of a command; or what a loop writes."""
        self._try(lambda: self._add([how, self._written(tree)]))

    def reads(self) -> None:
        """An input of a loop is read, and given next."""
        self._add(["read"])

    def settle(self) -> None:
        """The parameters that a device keeps are charged to it from now on."""
        for block, lent in list(self._lent.items()):
            if block._life is not None:
                self._filled.add(key := self._lives[id(block._life)])
                self._add(["keep", key, lent])
        self._lent.clear()

    # --- What the wrapped functions tell ---

    def perform(self, kind: str, name: str, function: Any, subject: tuple[Any, ...], args: Any, kwargs: Any) -> Any:
        """Calls a function, and records it if something new comes of it."""
        if self._inside or self.broken:
            return function(*subject, *args, **kwargs)
        self._inside = True
        try:
            read = self._seed if kind == "generator" else self._written
            written = self._try(lambda: [read(list(args)), self._written(dict(kwargs))])
            start = len(self._steps)
            result = function(*subject, *args, **kwargs)
        finally:
            self._inside = False
        if written is not None:
            result = traced(result)
            self._try(lambda: self._note(["do", kind, name, *written], kwargs, result, start))
        return result

    def is_known(self, tree: Any) -> bool:
        """True if there is an array or a number of the device in an argument."""
        if isinstance(tree, list | tuple):
            return any(map(self.is_known, tree))
        return isinstance(tree, MeteredArray) or id(tree) in self._numbers

    # --- Within ---

    def _key(self) -> int:
        self._keys += 1
        return self._keys

    def _add(self, step: Step) -> None:
        self._steps.append(step)
        if self._keys > MAX_STEPS and not self.broken:
            self.broken = f"it makes more than {MAX_STEPS:,} arrays and numbers on a device"

    def _try(self, work: Callable[[], Any]) -> Any:
        try:
            return work()
        except UnrepeatableError as why:
            self.broken = str(why)
        except Exception as why:  # the player's objects may do anything
            self.broken = f"{type(why).__name__} in what it passes to numpy or the engine"
        return None

    def _note(self, step: Step, kwargs: Any, result: Any, start: int) -> None:
        """Adds the step of an operation unless it has made only views. What the engine does comes before the memory of
        its result, which it charges when the array has arrived."""
        made: list[int | None] = []
        self._collect(result, made)
        if step[1] not in ("communication", "host", "disk", "wait"):
            if result is None or step[1] == "draw" or "out" in kwargs or any(key is not None for key in made):
                self._add([*step, made])
        else:
            self._steps.insert(start, [*step, made])

    def _collect(self, result: Any, made: list[int | None]) -> None:
        """The keys of the arrays and numbers in a result; None for views and others."""
        if isinstance(result, np.ndarray):
            block = block_of(result)
            key = None if block is None else self._key_of(block)
            made.append(None if key in self._filled else key)
            if key is not None:
                self._filled.add(key)
        elif isinstance(result, np.generic | Fetch | np.random.Generator):
            made.append(key := self._key())
            self._numbers[id(result)] = key, result
            if isinstance(result, np.integer) and result >= LARGE:
                self._large[int(result)] = key
            block = block_of(result._array) if isinstance(result, Fetch) else None
            if block is not None:
                made.append(self._key_of(block))  # what is charged for the array until it has arrived
        elif type(result) is int:
            made.append(self._key() if result >= LARGE else None)
            if result >= LARGE:
                self._large[result] = self._keys
        elif isinstance(result, list | tuple):
            for part in result:
                self._collect(part, made)

    def _key_of(self, block: ChargedBlock) -> int:
        if block._life is None:
            if block not in self._lent:
                raise UnrepeatableError("it uses parameters after they were lent")
            return self._lent[block]
        key = self._lives.get(id(block._life))
        if key is None:
            raise UnrepeatableError("it uses arrays that are charged to nothing, such as those of a fused kernel")
        return key

    def _written(self, one: Any) -> Any:
        known = self._numbers.get(id(one))
        if known is not None:
            return ("known", known[0])
        match one:
            case np.ndarray():
                return self._view(one)
            case np.integer() if int(one) in self._large:
                return ("as", one.dtype.str, self._large[int(one)])
            case None | bool() | float() | str() | np.generic():
                return one
            case int() if one in self._large:
                return ("known", self._large[one])
            case CallableInt():  # whose type decides the result's
                return ("device", int(one))
            case int():
                return one
            case slice():
                return ("slice", *map(self._written, (one.start, one.stop, one.step)))
            case list():
                return [self._written(part) for part in one]
            case range() if len(one) <= MAX_STEPS:
                return list(one)
            case tuple():
                return ("tuple", *map(self._written, one))
            case dict():
                return {key: self._written(value) for key, value in one.items()}
        if one is Ellipsis:
            return ("ellipsis",)
        if isinstance(one, np.dtype) or (isinstance(one, type) and issubclass(one, np.generic | bool | int | float)):
            return ("dtype", np.dtype(one).str)
        raise UnrepeatableError(f"it passes {type(one).__name__} to numpy or the engine")

    def _seed(self, one: Any) -> Any:
        """The seed of a generator: a large whole number near one that the device was given is that one and a few."""
        if isinstance(one, list | tuple):
            parts = [self._seed(part) for part in one]
            return parts if isinstance(one, list) else ("tuple", *parts)
        if type(one) is int and one >= LARGE and one not in self._large:
            near = min(self._large, key=lambda number: abs(one - number), default=0)
            if 0 < abs(one - near) < NEAR:
                return ("plus", self._large[near], one - near)
        return self._written(one)

    def _view(self, array: Any) -> Any:
        block = block_of(array)
        if block is None:
            return np.array(array)
        key, root = self._key_of(block), root_of(array)
        if key not in self._filled:
            content = memory_of(root)
            self._filled.add(key)
            self._add(["literal", key, content.copy() if content.any() else content.nbytes])
            if self._large and content.nbytes <= MAX_SEARCHED:
                self._add_numbers_in(content.tobytes(), key)
        offset = address_of(array) - address_of(root) if array.size else 0
        return ("view", key, offset, list(array.shape), list(array.strides), array.dtype.str)

    def _add_numbers_in(self, content: bytes, key: int) -> None:
        """States where a literal consists of large numbers that the device was given."""
        words = memoryview(content[: len(content) // WORD * WORD]).cast("I")
        for i, word in enumerate(words):
            if word in self._large:
                self._add(["inserted", key, WORD * i, self._large[word]])


# --- What is wrapped ---


def _wrapped(kind: str, name: str, function: Any, with_self: bool = False, if_known: bool = False) -> Any:
    """A function that is recorded where a device records. `with_self`: its first argument is the engine or a memory
    tier, which stays the same; a tier has the `kind`, if that is empty. `if_known`: it is recorded only with arrays of
    the device."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None or current.meter is None or (if_known and not recorder.is_known((*args, *kwargs.values()))):
            return function(*args, **kwargs)
        split = 1 if with_self else 0
        return recorder.perform(kind or args[0].kind, name, function, args[:split], args[split:], kwargs)

    return call


def _generator(seed: Any = None) -> Any:
    """`np.random.default_rng`, recorded: its seed may be a number that the device was given."""
    recorder = recorder_here()
    if recorder is None or current.meter is None:
        return _default_rng(seed)
    return recorder.perform("generator", "default_rng", _default_rng, (), (seed,), {})


def _draw_of(generator: metering.MeteredGenerator, name: str) -> Any:
    """A method of a generator; its draws are recorded if the generator is."""
    method = _attribute_of(generator, name)
    if name not in DRAWS:
        return method

    @wraps(method)
    def draw(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None or current.meter is None or not recorder.is_known(generator):
            return method(*args, **kwargs)
        return recorder.perform(
            "draw", name, lambda _, *args, **kwargs: drawn(*args, **kwargs), (), (generator, *args), kwargs
        )

    def drawn(*args: Any, **kwargs: Any) -> Any:
        number = method(*args, **kwargs)
        return np.float64(number) if type(number) is float else number  # which a recorder can follow

    return draw


_, _default_rng = metering.RANDOM_STAND_INS["default_rng"]
_attribute_of = metering.MeteredGenerator.__getattribute__


def install() -> None:
    """Wraps the functions once; where nothing is recorded, they do what they did."""
    array_ufunc, array_function = MeteredArray.__array_ufunc__, MeteredArray.__array_function__

    def ufunc_of(self: Any, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None:
            return array_ufunc(self, ufunc, method, *inputs, **kwargs)
        name = f"{ufunc.__name__}.{method}"
        return recorder.perform("ufunc", name, array_ufunc, (self, ufunc, method), inputs, kwargs)

    def function_of(self: Any, function: Any, types: Any, args: Sequence[Any], kwargs: Any) -> Any:
        recorder = recorder_here()
        if recorder is None:
            return array_function(self, function, types, args, kwargs)

        def call(*args: Any, **kwargs: Any) -> Any:
            return array_function(self, function, types, args, kwargs)

        return recorder.perform("numpy", NAME_OF.get(id(function), function.__name__), call, (), args, kwargs)

    named: Any = MeteredArray
    named.__array_ufunc__, named.__array_function__ = ufunc_of, function_of
    for name in METHODS:
        if hasattr(MeteredArray, name):
            setattr(named, name, _wrapped("method", name, getattr(MeteredArray, name)))
    for name in COMMUNICATION:
        setattr(ShardedEngine, name, _wrapped("communication", name, getattr(ShardedEngine, name), with_self=True))
    for name in TIER:
        setattr(MemoryTier, name, _wrapped("", name, getattr(MemoryTier, name), with_self=True))
    write = OutputStream.write

    def written(stream: OutputStream, item: Any) -> None:
        if recorder := recorder_here():
            recorder.returned(item, "write")
        write(stream, item)

    named = OutputStream
    named.write = written
    wait = _wrapped("wait", "wait", Fetch.wait)
    named = Fetch
    named.wait = named.result = wait
    named = metering.MeteredGenerator
    named.__getattribute__ = _draw_of
    metering.RANDOM_STAND_INS["default_rng"] = (metering._RNG, _generator)
    for name, (function, stand_in) in list(metering.STAND_INS.items()):
        kind, called = ("ufunc", f"{name}.__call__") if isinstance(function, np.ufunc) else ("numpy", name)
        metering.STAND_INS[name] = (function, _wrapped(kind, called, stand_in, if_known=True))


install()


# --- The run ---


END = object()
"""After the last input of a stream."""


class RecordingDevice(Device):
    """Tells its recorder what it is given and what it returns."""

    def __init__(self, cls: type, port: InProcessPort, recorder: DeviceRecorder) -> None:
        super().__init__(cls, port)
        self.recorder = recorder

    def call(self, method: str, box: list[Any]) -> Any:
        is_lent = isinstance(box[0], LentParameters)
        if box[0] is not NO_ARGUMENT:
            self.recorder.given(box[0].tree if is_lent else box[0], is_lent)
        result = super().call(method, box)
        self.recorder.settle()
        self.recorder.returned(self.held)
        return result

    def loop(self, source: InputStream, asks: Callable[[], object], sink: OutputStream) -> None:
        self.player.inference_loop(self._inputs(source.reader(self.port, asks)), sink)

    def _inputs(self, reader: Iterator[Any]) -> Iterator[Any]:
        while True:
            self.recorder.reads()
            box = [next(reader, END)]
            if box[0] is END:
                return
            self.recorder.given(box[0], False)
            yield box.pop()  # nothing here keeps it alive


class RecordingExecutor(InProcessExecutor):
    """Devices that record. Each may have a class of its own, as each of several processes would."""

    def __init__(
        self,
        size: int,
        late_puts: Collection[int] | None = None,
        byte_time: Mapping[str, int] | None = None,
        after_call: Callable[[Any, int, str], None] = lambda player, device, method: None,
    ) -> None:
        """`after_call` is given each device's object, its number, and the method that was called."""
        self.size, self.metered, self.after_call = size, True, after_call
        self.scheduler = Scheduler(size, True, late_puts, byte_time)
        self.scheduler.line_of_send = running_line
        self.recorders = [DeviceRecorder() for _ in range(size)]
        for port, recorder in zip(self.scheduler.ports, self.recorders):
            port.meter = RecordingMeter(recorder, byte_time)

    def made(self, classes: Sequence[type], kwargs: Mapping[str, Any]) -> RecordingExecutor:
        """This executor, with the player's object created on every device."""
        self.classes = classes
        self.devices = [RecordingDevice(*part) for part in zip(classes, self.scheduler.ports, self.recorders)]
        self._begin()
        self._run("__init__", lambda port: self.devices[port.device].make((), kwargs))
        return self

    def call(self, method: str, arguments: Sequence[Any], lent: bool) -> list[Any]:
        self._begin()
        results = super().call(method, arguments, lent)
        for device in self.devices:
            self.after_call(device.player, device.port.device, method)
        return results

    def stream(self, inputs: Iterable[Any]) -> Generator[Any, None, None]:
        self._begin()
        return super().stream(inputs)

    def recordings(self) -> list[Any]:
        """The steps of all commands of each device; or the reason why there are none, as a text."""
        return [recorder.broken or recorder.segments for recorder in self.recorders]

    def _begin(self) -> None:
        for recorder in self.recorders:
            recorder.begin()

    @contextmanager
    def _counting(self) -> Iterator[None]:
        with ExitStack() as stack:
            for cls in dict.fromkeys(self.classes):
                stack.enter_context(patched_numpy(cls, True))
            yield

"""Records what a device does with its arrays, as data that the judge can repeat on other values.

A recording has one list of steps for each command. Blocks of memory and numbers have keys: a step names the part of a
block that an operation reads or writes, so views need no steps. Whatever no step has made, such as zeros or numbers
that the player's code has computed outside of arrays, is recorded as a literal: it stays as it is when the other values
come. A large whole number, such as a seed, is known by its value: Python's own numbers have no identity, and where a
device makes an array of it, the literal says at which bytes it stands.
"""

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from lib.engine.engine import Fetch
from lib.engine.metering import ChargedBlock, Life, MeteredArray, address_of, block_of
from lib.engine.transport import CallableInt

from .functions import (
    UnrepeatableError,
    arrays_in,
    memory_of,
    root_of,
    whole_numbers_in,
)
from .traced_numbers import traced

MAX_STEPS = 20_000
"""Of one device."""

LARGE = 1 << 16
"""A whole number from here on that is equal to one that the device was given is that number."""

NEAR = 1 << 12
"""A seed that differs by less from a number that the device was given follows from that."""

WORD = 4
"""Bytes of a large number in an array that no step has made, where it is looked for."""

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

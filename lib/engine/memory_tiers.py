"""A device's slower memories: arrays on its host or on a disk, by name, which come back only by being fetched.

Time is the meter's clock, in flops. To each memory leads a link of its own, which carries one array at a time, in the
order in which they were asked for; a byte takes `byte_time` flops on it (see `launch`; 0 if not given). `put` and
`fetch` wait until theirs has been carried. A transfer that `fetch_async` asks for goes on while the device computes,
and who waits for it goes on at its end, or at once if that has passed. So the clock is the same on every transport.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from numpy import asarray, load, save  # by name: a metered run counts what players make with np.asarray
from numpy.typing import ArrayLike

from lib.engine.metering.arrays import own
from lib.engine.metering.meter import Meter, unmetered
from lib.engine.transports.base import Port
from lib.errors import RuleError

from .collectives import Array


class Fetch:
    """An array on its way to the device, whose memory it takes from the moment it was asked for."""

    def __init__(self, array: Array, end: int, meter: Meter, place: str) -> None:
        self._array: Array | None = array
        self._end, self._meter, self._place = end, meter, place

    def done(self) -> bool:
        """Whether it has arrived."""
        return self._meter.clock >= self._end

    def wait(self) -> Array:
        """The array, once it has arrived: handed over, so that it lives no longer than its new owner wants."""
        array, self._array = self._array, None
        if array is None:
            raise RuleError("it was waited for already; keep the array that wait() returned", self._place)
        self._meter.clock = max(self._meter.clock, self._end)
        return array

    result = wait


class Tier:
    """One slower memory of one device. Arrays have any shape and any dtype of numbers; S is the bytes of one.

    Raises (every call): RuleError, for a name that is not there or an array that cannot be kept.
    """

    def __init__(self, port: Port, kind: str, shelf: MutableMapping[str, Array]) -> None:
        self.port = port
        self.kind = kind
        self._shelf = shelf
        self._meter = port.meter or Meter()  # nobody reads the second one
        self._figures: dict[str, int] = getattr(self._meter, kind)
        self._free = 0
        """On the clock: when the link will have carried all that was asked for."""

    def put(self, name: str, arr: ArrayLike) -> None:
        """Writes a copy of an array, in the place of one of the same name; waits. Writes S bytes."""
        array = asarray(arr)
        if array.dtype.hasobject:
            raise RuleError(
                "arrays of Python objects cannot be kept; convert them to numbers with astype first",
                self._place(f"put({name!r})"),
            )
        if name in self._shelf:
            self.drop(name)
        with unmetered():
            self._shelf[name] = array.copy()
        figures = self._figures
        figures["written"] += array.nbytes
        figures["live"] += array.nbytes
        figures["peak"] = max(figures["peak"], figures["live"])
        self._meter.clock = self._carried(array.nbytes)

    def fetch(self, name: str) -> Array:
        """A copy of an array, on the device; waits. Reads S bytes."""
        return self._asked(name, "fetch").wait()

    def fetch_async(self, name: str) -> Fetch:
        """Asks for a copy of an array, as it is now; `wait()` gives it. Reads S bytes."""
        return self._asked(name, "fetch_async")

    def drop(self, name: str) -> None:
        """Forgets an array; takes no time."""
        with unmetered():
            self._figures["live"] -= self._found(name, "drop").nbytes
            del self._shelf[name]

    def __contains__(self, name: object) -> bool:
        return name in self._shelf

    def __iter__(self) -> Iterator[str]:
        """The names, in the order in which they came."""
        return iter(self._shelf)

    def __len__(self) -> int:
        return len(self._shelf)

    def _asked(self, name: str, call: str) -> Fetch:
        with unmetered():
            array = asarray(self._found(name, call)).copy()
        self._figures["read"] += array.nbytes
        mine = array if self.port.meter is None else own(array, self._meter)
        return Fetch(mine, self._carried(array.nbytes), self._meter, self._place(f"{call}({name!r})"))

    def _found(self, name: str, call: str) -> Array:
        if name not in self._shelf:
            near = get_close_matches(str(name), self._shelf, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "put it there first"
            raise RuleError(f"the {self.kind} has no {name!r}; {advice}", self._place(f"{call}({name!r})"))
        return self._shelf[name]

    def _carried(self, nbytes: int) -> int:
        """On the clock: when the link will have carried so many bytes more."""
        self._free = max(self._free, self._meter.clock) + nbytes * self._meter.byte_time.get(self.kind, 0)
        return self._free

    def _place(self, call: str) -> str:
        return f"device {self.port.device} of {self.port.size}, {self.kind}.{call}"


class Files(MutableMapping[str, Array]):
    """Arrays in files, which are read by mapping them into memory. The folder goes when this object goes."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="engine-disk-"))
        self._paths: dict[str, Path] = {}
        self._written = 0
        finalize(self, rmtree, self._folder, ignore_errors=True)

    def __setitem__(self, name: str, array: Array) -> None:
        self.pop(name, None)
        self._written += 1
        path = self._folder / f"{self._written}.npy"  # what a player calls it may be no name for a file
        save(path, array, allow_pickle=False)
        self._paths[name] = path

    def __getitem__(self, name: str) -> Array:
        mapped: Array = load(self._paths[name], mmap_mode="r")
        return mapped

    def __delitem__(self, name: str) -> None:
        self._paths.pop(name).unlink()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

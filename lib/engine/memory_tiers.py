"""A device's slower memories, host and disk: arrays by name, which come back only when they are fetched.

Time is the meter's clock, in flops. Each memory has a link, which carries one array at a time in the order of the
calls; a byte takes `byte_time` flops on it (see `launch`; 0 by default). `put` and `fetch` wait for the end of their
transfer. A transfer started by `fetch_async` continues while the device computes; `wait()` advances the clock to its
end, unless that has already passed. So the clock is the same on every transport.
"""

from collections.abc import Iterator, MutableMapping
from difflib import get_close_matches
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from weakref import finalize

from numpy import load, save
from numpy.typing import ArrayLike

from lib.engine.metering.meter import Meter, unmetered
from lib.engine.transports.base import Port
from lib.errors import RuleError

from .collectives import Array


class Fetch:
    """An array in transfer to the device, whose memory it occupies from the moment of the call."""

    def __init__(self, array: Array, transfer: int, meter: Meter, place: str) -> None:
        self._array: Array | None = array
        self._transfer, self._meter, self._place = transfer, meter, place

    def done(self) -> bool:
        return self._meter.clock >= self._meter.ends[self._transfer][1]

    def wait(self) -> Array:
        """Waits until it has arrived and returns the array, once. No reference is kept here, so the caller decides when
        its memory is freed."""
        array, self._array = self._array, None
        if array is None:
            raise RuleError("wait() was already called; keep the array that it returned", self._place)
        self._meter.wait_for(self._transfer)
        return array

    result = wait


class MemoryTier:
    """One slower memory of one device. Arrays have any shape and any numeric dtype; S is the bytes of one.

    Raises (every call): RuleError, for a name that does not exist or an array that cannot be stored.
    """

    def __init__(self, port: Port, kind: str, store: MutableMapping[str, Array]) -> None:
        self.port = port
        self.kind = kind
        self._store = store
        self._meter = port.meter or Meter()  # a meter that is never read
        self._figures: dict[str, int] = getattr(self._meter, kind)

    def put(self, name: str, arr: ArrayLike) -> None:
        """Writes a copy of an array, replacing one of the same name; waits. Writes S bytes."""
        place = self._place(f"put({name!r})")
        try:
            with unmetered():
                array = self.port.library.on_host(self.port.library.plain(arr))
        except RuleError as why:
            raise why.at(place) from None
        if array.dtype.hasobject:
            raise RuleError(
                "arrays of Python objects cannot be stored; convert them to numbers with astype first", place
            )
        if name in self._store:
            self.drop(name)
        self._store[name] = array
        figures = self._figures
        figures["written"] += array.nbytes
        figures["live"] += array.nbytes
        figures["peak"] = max(figures["peak"], figures["live"])
        self._meter.wait_for(self._meter.transfer(self.kind, array.nbytes))

    def fetch(self, name: str) -> Array:
        """A copy of an array, on the device; waits. Reads S bytes."""
        return self._start_fetch(name, "fetch").wait()

    def fetch_async(self, name: str) -> Fetch:
        """Starts the transfer of a copy of an array, as it is now; `wait()` returns it. Reads S bytes."""
        return self._start_fetch(name, "fetch_async")

    def drop(self, name: str) -> None:
        """Deletes an array; takes no time."""
        with unmetered():
            self._figures["live"] -= self._look_up(name, "drop").nbytes
            del self._store[name]

    def __contains__(self, name: object) -> bool:
        return name in self._store

    def __iter__(self) -> Iterator[str]:
        """The names, in the order in which they were put."""
        return iter(self._store)

    def __len__(self) -> int:
        return len(self._store)

    def _start_fetch(self, name: str, call: str) -> Fetch:
        with unmetered():
            array = self.port.library.adopted(self._look_up(name, call))
        self._figures["read"] += array.nbytes
        charged = array if self.port.meter is None else self.port.library.charged(array, self._meter)
        return Fetch(
            charged, self._meter.transfer(self.kind, array.nbytes), self._meter, self._place(f"{call}({name!r})")
        )

    def _look_up(self, name: str, call: str) -> Array:
        if name not in self._store:
            near = get_close_matches(str(name), self._store, n=1)
            advice = f"did you mean {near[0]!r}?" if near else "put it there first"
            raise RuleError(f"the {self.kind} has no {name!r}; {advice}", self._place(f"{call}({name!r})"))
        return self._store[name]

    def _place(self, call: str) -> str:
        return f"device {self.port.device} of {self.port.size}, {self.kind}.{call}"


class FileStore(MutableMapping[str, Array]):
    """Arrays in files, mapped into memory when read. The folder is deleted with this object."""

    def __init__(self) -> None:
        self._folder = Path(mkdtemp(prefix="engine-disk-"))
        self._paths: dict[str, Path] = {}
        self._written = 0
        finalize(self, rmtree, self._folder, ignore_errors=True)

    def __setitem__(self, name: str, array: Array) -> None:
        self.pop(name, None)
        self._written += 1
        path = self._folder / f"{self._written}.npy"  # a player's name may not be a valid file name
        save(path, array, allow_pickle=False)
        self._paths[name] = path

    def __getitem__(self, name: str) -> Array:
        map_arrays: Array = load(self._paths[name], mmap_mode="r")
        return map_arrays

    def __delitem__(self, name: str) -> None:
        self._paths.pop(name).unlink()

    def __iter__(self) -> Iterator[str]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)

"""ShardedEngine, the base class of a distributed model, with a device's slower memories and its symmetric buffers.

The interface is like a process's in MPI or torch.distributed: blocking calls on arrays of numpy or torch. Blocking
calls in one thread are enough, because the in-process transport switches greenlets where a device waits; with
coroutines every method of a player's class would need `await`.

Here stands which calls a class may make, what they check and what they charge. How a call travels is left to the
transports, what runs a class to `devices`, and the bytes of a call to `collectives`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping, Sequence
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from typing import Any, Protocol, Self, TypeVar
from weakref import finalize

from numpy import load, save
from numpy.typing import ArrayLike

from lib.engine.collectives import (
    Array,
    CollectiveCall,
    checked_group,
    checked_partner,
    collective_call,
    device_numbers,
    dtype_code,
    message_source,
    message_traffic,
    put_traffic,
    require_sendable,
    whole_number,
)
from lib.engine.inprocess import single_port
from lib.engine.metering import Meter, unmetered
from lib.engine.transport import CallableInt, Port, Put, call_place
from lib.errors import PuzzleError, RuleError

# --- The streams of an inference loop, as types that can be subscripted: `Reader[ArrayLike]` ---
#
# `io` has types with these names only since Python 3.14.

Item = TypeVar("Item", covariant=True)
Output = TypeVar("Output", contravariant=True)


class Reader(Protocol[Item]):
    """A stream of inputs."""

    def __iter__(self) -> Iterator[Item]: ...


class Writer(Protocol[Output]):
    """A stream of outputs."""

    def write(self, item: Output, /) -> object: ...


# --- A device's slower memories, host and disk: arrays by name, which come back only when they are fetched ---
#
# Time is the meter's clock, in flops. Each memory has a link, which carries one array at a time in the order of the
# calls; a byte takes `byte_time` flops on it (see `launch`; 0 by default). `put` and `fetch` wait for the end of their
# transfer. A transfer started by `fetch_async` continues while the device computes; `wait()` advances the clock to its
# end, unless that has already passed. So the clock is the same on every transport.


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


# --- Symmetric buffers for one-sided puts: allocated in one order on every device, so that positions correspond ---
#
# This is the memory model of OpenSHMEM: a put needs no matching receive, and is complete after a barrier.


class SymmetricBuffers:
    """The buffers of one device, and its puts into other devices' buffers since the last barrier."""

    def __init__(self, port: Port) -> None:
        self.port = port
        self.buffers: list[Array] = []
        self.puts: list[tuple[int, Put]] = []
        port.apply_put = self.write

    def allocate(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """Allocates a buffer of zeros. All devices synchronize, so that a difference in shape or dtype is refused
        before a put can go to the wrong place."""
        port = self.port
        buffer = port.library.zeros(shape, dtype)
        try:
            require_sendable(buffer.shape, buffer.dtype)
        except RuleError as why:
            raise why.at(call_place(port, "symmetric")) from None
        self.buffers.append(buffer)  # before synchronizing: the first device to continue may put into this one
        everyone = tuple(range(port.size))
        port.collective(
            CollectiveCall("symmetric", "", 0, tuple(buffer.shape), dtype_code(buffer.dtype), everyone), buffer
        )
        return buffer if port.meter is None else port.library.charged(buffer, port.meter)

    def put(self, source: ArrayLike, place: ArrayLike, target: int) -> None:
        """Sends `source` to the position on device `target` that corresponds to `place`."""
        port = self.port
        library = port.library
        try:
            src, dst = library.plain(source), library.plain(place)
            target = checked_partner(target, port.device, port.size)
            number, offset = self._find(dst)
            buffer = self.buffers[number]
            require_sendable(src.shape, src.dtype)
            if dst.shape != src.shape or dst.dtype != src.dtype:
                raise RuleError(
                    f"it puts {src.dtype} {tuple(src.shape)} into {dst.dtype} {tuple(dst.shape)}; "
                    "both must have the same shape and dtype"
                )
            if dst.dtype != buffer.dtype:
                raise RuleError(f"dst is a view as {dst.dtype} of a buffer of {buffer.dtype}; keep the buffer's dtype")
        except RuleError as why:
            raise why.at(call_place(port, "send_async", target)) from None
        put = Put(number, offset, library.strides(dst), library.copy(src))
        if port.meter is not None:
            port.meter.communicate("send_async", put_traffic(put.content.shape, put.content.dtype, put.strides))
        if not port.try_put(target, put):
            self.puts.append((target, put))

    def _find(self, dst: Array) -> tuple[int, int]:
        """The number of the buffer that `dst` is a view of, and the byte at which it starts there."""
        for number, buffer in enumerate(self.buffers):
            offset = self.port.library.offset_in(buffer, dst)
            if offset is not None:
                return number, offset
        raise RuleError("dst is not a view of a symmetric buffer; get one from self.symmetric(shape, dtype)")

    def fence(self, call: CollectiveCall) -> None:
        """Synchronizes the call's group. Afterwards all puts between its members have arrived."""
        puts = [(to, put) for to, put in self.puts if to in call.group]
        self.puts = [(to, put) for to, put in self.puts if to not in call.group]
        for put in self.port.fence(call, puts):
            self.write(put)

    def write(self, put: Put) -> None:
        """Writes a put that has arrived into this device's buffer."""
        buffer = self.buffers[put.buffer]
        self.port.library.place_in(buffer, put.offset, put.strides, put.content)[...] = put.content


# --- ShardedEngine, the base class of a distributed model: one device's blocking calls on arrays of numpy or torch ---

Group = Sequence[int] | None


class Future:
    """The completion of a `send_async`: after `wait()`, the source may be overwritten."""

    def done(self) -> bool:
        return True  # both transports copy the source immediately

    def wait(self) -> None:
        return None

    result = wait


class ShardedEngine(ABC):
    """One device. Subclasses implement `load_checkpoint`, `forward` and, to train, `backward`; `launch` runs them.

    A subclass need not call `super().__init__()`: the device is known before its `__init__` runs. If it is created
    without `launch`, it is the only device. In the following, n is the number of devices in the group, and S the bytes
    of the array that one device contributes. Arrays may have any numeric dtype and any memory order. Every result is a
    new array that the device may write to. `group` lists the devices that make the call together, in the order in
    which results are joined; None means all.

    Raises (every call): MismatchError, if the group's calls differ; DeadlockError, if no device can continue;
    RuleError, if an argument is invalid. The first two end the run, also if the class catches them. After a RuleError,
    for which nothing was sent, the class may go on.
    """

    _port: Port

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = super().__new__(cls)
        self._port = single_port()
        return self

    @property
    def device_id(self) -> CallableInt:
        """This device's number, starting at 0; may also be called."""
        return self._port.device

    @property
    def num_devices(self) -> CallableInt:
        """The number of devices, the world size; may also be called."""
        return self._port.size

    @property
    def xp(self) -> Any:
        """The array namespace of this device's arrays (the array API standard): numpy, or on torch
        `array_api_compat.torch`. A class that uses only `self.xp`, and methods that arrays of both libraries have, runs
        on both."""
        return self._port.library.xp

    @property
    def device(self) -> Any:
        """Where this device's arrays are: "cpu", or a torch.device such as cuda:0; for `self.xp.zeros(device=...)`."""
        return self._port.library.device

    # --- Point to point -------------------------------------------------------------------------------

    def send(self, dest_id: int, arr: ArrayLike) -> None:
        """Sends a copy of an array of any shape to device `dest_id`; does not wait. Sends S bytes, at least 8, and 8
        for each dimension beyond the first."""
        port = self._port
        try:
            array: Any = arr if type(arr) is port.library.plain_type else port.library.plain(arr)
            dtype = array.dtype
            dest_id = dest_id if type(dest_id) is int else whole_number(dest_id, "a device")
            if getattr(dtype, "metadata", None):  # as in `_collective`
                require_sendable(array.shape, dtype)
            traffic = message_traffic(dest_id, array.shape, dtype, port.device, port.size)
        except PuzzleError as why:
            raise why.at(call_place(port, "send", dest_id)) from None
        meter = port.meter
        if meter is not None:
            meter.communicate("send", traffic)
        port.send(dest_id, array)

    def receive(self, src_id: int) -> Array:
        """Waits for the next array that device `src_id` sends to this one, with its shape and dtype. Sends nothing."""
        port = self._port
        try:
            src_id = src_id if type(src_id) is int else whole_number(src_id, "a device")
            message_source(src_id, port.device, port.size)
        except PuzzleError as why:
            raise why.at(call_place(port, "receive", src_id)) from None
        array, meter = port.receive(src_id), port.meter
        if meter is None:
            return array
        meter.communicate("receive")
        meter.record_stored()
        return port.library.charged(array, meter)

    def symmetric(self, shape: int | tuple[int, ...], dtype: Any = "float32") -> Array:
        """A buffer of zeros that other devices can put into, with the same shape and dtype on all devices. All devices
        allocate their buffers in the same order. Sends nothing."""
        return self._symmetric.allocate(shape, dtype)

    def send_async(self, src: ArrayLike, dst: Array, target_device_id: int) -> Future:
        """Puts `src` into the symmetric buffer of another device, at the position that `dst`, a view of this device's
        buffer, has in its own. The target sees it after the next `barrier()`; before that it may read the old or the
        new content. Sends as many bytes as `send`, 8 for the place, and 8 for each dimension whose elements are not
        contiguous in the buffer."""
        self._symmetric.put(src, dst, target_device_id)
        return Future()

    def barrier(self, group: Group = None) -> None:
        """Waits until all devices of the group have called it, and all puts between them have arrived. Sends
        nothing."""
        port = self._port
        try:
            members = checked_group(None if group is None else device_numbers(group), port.device, port.size)
        except PuzzleError as why:
            raise why.at(call_place(port, "barrier")) from None
        if port.meter is not None:
            port.meter.communicate("barrier")
        self._symmetric.fence(CollectiveCall("barrier", "", 0, (), "", members))

    # --- Collectives ----------------------------------------------------------------------------------

    def all_gather(self, arr: ArrayLike, axis: int = 0, group: Group = None) -> Array:
        """Joins all devices' arrays along `axis` in device order, which makes that axis n times as long. Scalars give a
        vector of n. Sends (n-1) S bytes."""
        return self._collective("all_gather", arr, "", axis, group)

    def all_reduce(self, arr: ArrayLike, op: str = "sum", group: Group = None) -> Array:
        """Reduces all devices' arrays element by element (sum, avg, max, min, prod). Keeps the shape and the dtype,
        except that the average of whole numbers is float64. Sends 2(n-1)/n S bytes."""
        return self._collective("all_reduce", arr, op, 0, group)

    def reduce_scatter(self, arr: ArrayLike, op: str = "sum", axis: int = 0, group: Group = None) -> Array:
        """Reduces all devices' arrays and returns this device's part, one of n equal parts along `axis`.
        Sends (n-1)/n S bytes."""
        return self._collective("reduce_scatter", arr, op, axis, group)

    def all_to_all(self, arr: ArrayLike, axis: int = 0, group: Group = None) -> Array:
        """Splits the array into n equal parts along `axis`, sends the i-th to the i-th device, and joins the parts that
        arrive along `axis`. The shape stays the same. Sends (n-1)/n S bytes."""
        return self._collective("all_to_all", arr, "", axis, group)

    def _collective(self, name: str, arr: ArrayLike, op: str, axis: int, group: Group) -> Array:
        port = self._port
        try:
            array: Any = arr if type(arr) is port.library.plain_type else port.library.plain(arr)
            members = None if group is None else device_numbers(group)
            axis = axis if type(axis) is int else whole_number(axis, "an axis")
            if getattr(array.dtype, "metadata", None):  # it equals the bare dtype, so the cache cannot tell them apart
                require_sendable(array.shape, array.dtype)
            call = collective_call(name, str(op), axis, array.shape, array.dtype, members, port.device, port.size)
        except PuzzleError as why:
            raise why.at(call_place(port, name)) from None
        meter = port.meter
        if meter is None:
            result: Array = port.collective(call, array)
            return result
        meter.communicate(name, call.traffic)
        return port.library.charged(port.collective(call, array), meter)

    @cached_property
    def _symmetric(self) -> SymmetricBuffers:
        return SymmetricBuffers(self._port)

    # --- Slower memories ------------------------------------------------------------------------------

    @cached_property
    def host(self) -> MemoryTier:
        """The memory of this device's host: `put`, `fetch`, `fetch_async` and `drop` arrays by name."""
        return MemoryTier(self._port, "host", {})

    @cached_property
    def disk(self) -> MemoryTier:
        """A disk of this device, with the same calls; arrays are memory-mapped files."""
        store = getattr(self._port, "disk_store", FileStore)  # a graded device can write no files
        return MemoryTier(self._port, "disk", store())

    # --- What a model implements ----------------------------------------------------------------------

    @abstractmethod
    def load_checkpoint(self, params: dict[str, ArrayLike]) -> None:
        """Copies this device's part of the model's full parameters, which are read-only and valid only during the
        call."""

    @abstractmethod
    def forward(self, x: Any) -> Any:
        """The output for an input."""

    def backward(self, grads: Any) -> Any:
        """The gradients of the parameters, by name, given the gradient of the output. A class for inference needs no
        backward."""
        raise RuleError(f"{type(self).__name__} defines no backward; a class that is trained needs one")

    def inference_loop(self, input_stream: Reader[Any], output_stream: Writer[Any]) -> None:
        """Reads inputs until the stream ends, and writes the output for each. A pipeline's forward returns None on all
        devices except the last; None does not count as an output.

        Your own loop may write at any time, and only on some devices. On a device that reads no inputs, the loop ends
        when it waits for a message from a device whose loop has ended.
        """
        for x in iter(input_stream):
            output_stream.write(self.forward(x))

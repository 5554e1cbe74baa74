"""ShardedEngine, the base class of a distributed model: one device's blocking calls on arrays of numpy or torch.

The interface is like a process's in MPI or torch.distributed. Blocking calls in one thread are enough, because the
in-process transport switches greenlets where a device waits.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Self

from numpy.typing import ArrayLike

from lib.engine.transports.base import CallableInt, Port, call_place
from lib.engine.transports.inprocess import single_port
from lib.errors import PuzzleError, RuleError

from .arguments import checked_group, device_numbers, require_sendable, whole_number
from .call import CollectiveCall, collective_call, message_source, message_traffic
from .collectives import Array
from .memory_tiers import FileStore, MemoryTier
from .reader_writer import Reader, Writer
from .symmetric import SymmetricBuffers

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

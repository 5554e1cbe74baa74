"""Tensors of torch on one device, metered like arrays: by storage, and with torch's own formulas for flops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

import array_api_compat.torch
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from lib.engine.metering.arrays import ChargedBlock, LentBlock
from lib.engine.metering.meter import Meter, current, unmetered
from lib.engine.player_code import current_player_line
from lib.errors import RuleError

from .numpy_library import ArrayLibrary

SENDABLE = "bool uint8 int8 int32 int64 float16 bfloat16 float32 float64 complex64 complex128".split()
"""Dtypes that gloo can both move and reduce."""

_aten = torch.ops.aten
FLOPS = {
    **flop_registry,
    **dict.fromkeys((_aten.mv, _aten.dot, _aten.vdot), lambda a, *_, **more: 2 * a.numel()),
    _aten.addmv: lambda _, a, *__, **more: 2 * a.numel(),
}
"""Flops of each operation, from its arguments. Torch itself does not count products with a vector."""


class TorchLibrary(ArrayLibrary):
    """The library of a run on torch, whose tensors are on `device`."""

    xp = array_api_compat.torch
    array_types = (np.ndarray, torch.Tensor)
    plain_type = None  # every tensor is checked

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self._thread: Any = None
        self._stream: Any = None
        self.plain = self._plain
        self.charged = charged

    def _plain(self, given: Any) -> Any:
        if isinstance(given, np.ndarray):
            raise _refused(
                "this is an array of numpy; on torch a class sends tensors, so make it with torch or self.xp"
            )
        with unmetered():
            array = given.detach() if isinstance(given, torch.Tensor) else torch.from_numpy(np.array(given))
        if not isinstance(given, torch.Tensor):
            return array.to(self.device)
        if array.device != self.device:
            raise _refused(
                f"this tensor is on {array.device}, and the device computes on {self.device}; move it with "
                f".to({str(self.device)!r})"
            )
        name = str(array.dtype).removeprefix("torch.")
        if name not in SENDABLE or array.layout is not torch.strided:
            what = f"dtype {name}" if array.layout is torch.strided else f"layout {array.layout}"
            raise _refused(f"gloo cannot send a tensor of {what}; convert it, for instance with .to(torch.float32)")
        return array

    def adopted(self, given: Any) -> Any:
        with unmetered():
            return torch.tensor(given, device=self.device) if isinstance(given, np.ndarray) else self._moved(given)

    def _moved(self, given: Any) -> Any:
        return given.detach().to(self.device, copy=True, memory_format=torch.contiguous_format)

    def copy(self, array: Any) -> Any:
        with unmetered():
            return array.clone(memory_format=torch.contiguous_format)

    def copy_out(self, array: Any) -> Any:
        """A copy in the processor's memory."""
        with unmetered():
            return array.detach().to("cpu", copy=True) if isinstance(array, torch.Tensor) else np.array(array)

    def on_host(self, array: Any) -> Any:
        try:
            return np.asarray(self.copy_out(array).numpy())
        except TypeError:
            raise _refused(f"a slower memory cannot store {array.dtype}; convert it with .to(torch.float32)") from None

    def lend(self, array: Any, meter: Meter | None) -> tuple[Any, LentBlock | None]:
        tensor = self.adopted(array)
        block = None if meter is None else LentBlock(meter, tensor.nbytes)
        if block is not None:
            tensor.untyped_storage()._block = block
        return tensor, block

    def zeros(self, shape: Any, dtype: Any) -> Any:
        with unmetered():
            return torch.zeros(shape, dtype=named_dtype(dtype), device=self.device)

    def strides(self, array: Any) -> tuple[int, ...]:
        return tuple(step * array.itemsize for step in array.stride())

    def offset_in(self, buffer: Any, view: Any) -> int | None:
        same = view.untyped_storage()._cdata == buffer.untyped_storage()._cdata
        return int(view.storage_offset()) if same else None

    def place_in(self, buffer: Any, offset: int, strides: tuple[int, ...], like: Any) -> Any:
        return torch.as_strided(buffer, like.shape, [step // like.itemsize for step in strides], offset)

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    def in_background(self, work: Callable[[], object]) -> Future[float]:
        """Does work in a thread, one task after the other; on a GPU in a separate stream, after everything that this
        thread has requested so far. Returns the seconds that the work took."""
        self._thread = self._thread or ThreadPoolExecutor(1)
        stream = nullcontext()
        if self.device.type == "cuda":
            self._stream = self._stream or torch.cuda.Stream(self.device)
            asked, stream = torch.cuda.current_stream(self.device).record_event(), torch.cuda.stream(self._stream)

        def timed() -> float:
            start = perf_counter()
            with stream:
                if self.device.type == "cuda":
                    self._stream.wait_event(asked)
                work()
                self.synchronize()
            return perf_counter() - start

        future: Future[float] = self._thread.submit(timed)
        return future

    def fill(self, tensor: Any, given: Any) -> None:
        tensor.copy_(torch.from_numpy(np.array(given)))

    @contextmanager
    def watched(self, cls: type, metered: bool) -> Iterator[None]:
        """Also refuses numpy's functions on tensors, which would copy them to the processor unnoticed."""
        convert, torch.Tensor.__array__ = torch.Tensor.__array__, _refuse_numpy
        try:
            with _Metering() if metered else nullcontext():
                yield
        finally:
            torch.Tensor.__array__ = convert


def named_dtype(dtype: Any) -> Any:
    """A dtype of torch, from a dtype of torch or numpy, or from its name."""
    return dtype if isinstance(dtype, torch.dtype) else getattr(torch, np.dtype(dtype).name)


def charged(tensor: Any, meter: Meter) -> Any:
    """The tensor, whose storage is charged to `meter` for as long as it lives; once, however many tensors view it."""
    storage = tensor.untyped_storage()
    if not hasattr(storage, "_block"):
        storage._block = ChargedBlock(meter, storage.nbytes())
    return tensor


class _Metering(TorchDispatchMode):  # type: ignore[misc]
    """Counts the flops of every operation of torch, and charges the storages that it makes."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        meter = current.meter
        if meter is not None:
            count = FLOPS.get(function._overloadpacket)
            if count is not None:
                meter.compute(count(*args, **(kwargs or {}), out_val=result))
            for tensor in tree_iter(result):
                if isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided:
                    charged(tensor, meter)
        return result


def _refused(why: str) -> RuleError:
    return RuleError(f"{why}{current_player_line()}")


def _refuse_numpy(tensor: Any, *_: Any, **__: Any) -> Any:
    raise _refused("a function of numpy got a tensor of torch; use a function of torch, of self.xp, or a method")


with _Metering():  # the first use of a mode loads a thousand modules: here, once for all devices
    torch.zeros(1)

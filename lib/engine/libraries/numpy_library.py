"""Arrays of numpy, in the memory of the process."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy import array as new_array  # by name: a metered run counts what players make with np.array
from numpy import ndarray, zeros

from lib.engine.arguments import plain_array
from lib.engine.collectives import Array
from lib.engine.metering.arrays import LentBlock, as_metered, lend, plain_view
from lib.engine.metering.meter import Meter
from lib.engine.metering.numpy_patch import patched_numpy

from .base import ArrayLibrary


class NumpyLibrary(ArrayLibrary):
    """The library of the transports in process and on MPI."""

    xp: Any = np
    device: Any = "cpu"
    array_types: tuple[Any, ...] = (ndarray,)
    plain_type: type | None = ndarray
    plain = staticmethod(plain_array)
    charged = staticmethod(as_metered)

    def adopted(self, given: Array) -> Array:
        return new_array(given)

    def copy(self, array: Array) -> Array:
        return array.copy()

    def copy_out(self, array: Array) -> Array:
        return new_array(plain_view(array))

    on_host = copy_out

    def lend(self, array: Array, meter: Meter | None) -> tuple[Array, LentBlock | None]:
        if meter is not None:
            return lend(array, meter)
        view = array.view()
        view.flags.writeable = False
        return view, None

    def zeros(self, shape: Any, dtype: Any) -> Array:
        return zeros(shape, dtype)

    def strides(self, array: Array) -> tuple[int, ...]:
        return array.strides

    def offset_in(self, buffer: Array, view: Array) -> int | None:
        offset = _address(view) - _address(buffer)
        shares = np.may_share_memory(view, buffer) if view.size else _is_view(view, buffer)
        return offset if 0 <= offset <= buffer.nbytes and shares else None

    def place_in(self, buffer: Array, offset: int, strides: tuple[int, ...], like: Array) -> Array:
        flat = buffer.reshape(-1).view(np.uint8)
        return ndarray(like.shape, like.dtype, flat.data, offset, strides) if like.size else like

    def watched(self, cls: type, metered: bool) -> AbstractContextManager[None]:
        return patched_numpy(cls, metered)


NUMPY: ArrayLibrary = NumpyLibrary()


def _is_view(array: Any, buffer: Array) -> bool:
    """True also for an empty view, which shares no memory."""
    while array is not None and array is not buffer:
        array = getattr(array, "base", None)
    return array is buffer


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address

"""Arrays of numpy, in the memory of the process, and the interface of any array library."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from numpy import array as new_array  # by name: a metered run counts what players make with np.array
from numpy import ndarray, zeros

from lib.engine.arguments import plain_array
from lib.engine.collectives import Array
from lib.engine.metering.arrays import LentBlock, address_of, as_metered, bases_of, lend, plain_view
from lib.engine.metering.meter import Meter
from lib.engine.metering.numpy_patch import patched_numpy


class ArrayLibrary:
    """A library of arrays on one device: numpy, unless a subclass overrides a method. `xp` is its array namespace,
    `device` where its arrays are. Everything else uses methods that all arrays have."""

    xp: Any = np
    device: Any = "cpu"
    array_types: tuple[Any, ...] = (ndarray,)
    """The types of arrays in arguments and results."""
    plain_type: type | None = ndarray
    """Arrays of this type can be sent as they are."""
    plain: Callable[[Any], Array] = staticmethod(lambda given: plain_array(plain_view(given)))
    """Converts what a player passes to an array that can be sent; may raise RuleError."""
    charged: Callable[[Array, Meter], Array] = staticmethod(as_metered)
    """An array, with its memory charged to a meter."""

    def adopted(self, given: Any) -> Array:
        """A new array on the device, with the elements of an array of numpy or of this library."""
        return new_array(given)

    def copy(self, array: Any) -> Array:
        """A new array, whose memory is not charged."""
        copied: Array = array.copy()
        return copied

    def copy_out(self, array: Any) -> Array:
        return new_array(plain_view(array))

    def on_host(self, array: Any) -> Array:
        """A copy as an array of numpy."""
        return self.copy_out(array)

    def lend(self, array: Any, meter: Meter | None) -> tuple[Array, LentBlock | None]:
        """An array that does not belong to the device, and its block, which is not charged yet."""
        if meter is not None:
            return lend(array, meter)
        view = array.view()
        view.flags.writeable = False
        return view, None

    def zeros(self, shape: Any, dtype: Any) -> Array:
        """A new array, whose memory is not charged."""
        return zeros(shape, dtype)

    def strides(self, array: Any) -> tuple[int, ...]:
        """Strides, in the form that `place_in` takes."""
        steps: tuple[int, ...] = array.strides
        return steps

    def offset_in(self, buffer: Any, view: Any) -> int | None:
        """Where a view of a buffer starts in it; None if the array is not a view of it."""
        offset = address_of(view) - address_of(buffer)
        shares = np.may_share_memory(view, buffer) if view.size else any(base is buffer for base in bases_of(view))
        return offset if 0 <= offset <= buffer.nbytes and shares else None

    def place_in(self, buffer: Any, offset: int, strides: tuple[int, ...], like: Any) -> Array:
        """The view of a buffer that starts at an offset, with the shape and dtype of another array."""
        flat = buffer.reshape(-1).view(np.uint8)
        return ndarray(like.shape, like.dtype, flat.data, offset, strides) if like.size else like

    def synchronize(self) -> None:
        """Waits until all requested operations have been computed."""

    def watched(self, cls: type, metered: bool) -> AbstractContextManager[None]:
        """A context in which the code of a class is metered."""
        return patched_numpy(cls, metered)


NUMPY = ArrayLibrary()


def namespace(array: Any) -> Any:
    """The functions of an array's library."""
    if isinstance(array, ndarray):
        return np
    from array_api_compat import array_namespace  # only here, because it comes with torch

    return array_namespace(array)


def numbers(count: int, like: Any) -> Array:
    """0 to `count` - 1, on the device of another array."""
    if isinstance(like, ndarray):
        return np.arange(count)
    indices: Array = namespace(like).arange(count, device=like.device)
    return indices


def cast_like(like: Any, array: Any) -> Array:
    cast: Array = array.astype(like.dtype) if isinstance(array, ndarray) else array.to(like.dtype)
    return cast

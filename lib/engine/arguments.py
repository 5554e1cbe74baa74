"""Validates what players pass to the engine: device numbers, groups, and arrays that can be sent.

The meters count bytes of array elements, so nothing else may be sent with them: no Python objects, field names, dtype
metadata, or numbers disguised as the shape of an empty array.
"""

from collections.abc import Sequence, Set
from math import prod
from operator import index
from reprlib import repr as short
from typing import Any

import numpy as np
from numpy import asarray  # by name: a metered run counts what players make with np.asarray

from lib.errors import RuleError
from lib.masked_arrays import refuse_masked

from .collectives import Array
from .words import SAYS

NATIVE = frozenset("?bhilqBHILQefdFD")
"""Type characters of the dtypes that can be sent. Other dtypes have widths, units or byte orders, which could carry
information."""

MAX_EMPTY_BYTES = 1 << 16
"""The maximum product of an empty array's nonzero axes and its element size."""


def require_sendable(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuses arrays that cannot be sent, or that would carry uncounted information in names, metadata or shape."""
    if isinstance(dtype, np.dtype):
        _require_native(dtype)
    if 0 in shape and prod(n for n in shape if n) * dtype.itemsize > MAX_EMPTY_BYTES:
        raise RuleError(
            f"an array of {dtype} {tuple(shape)} is empty, so only its shape would be sent, which no meter counts; "
            "send numbers as the elements of an array"
        )


def _require_native(dtype: np.dtype[Any]) -> None:
    if dtype.hasobject:
        raise RuleError(f"arrays of Python objects cannot be sent; got dtype {dtype}, so convert it with astype first")
    if dtype.names:
        raise RuleError(
            f"an array with named fields ({', '.join(dtype.names)}) cannot be sent; send each field separately"
        )
    if dtype.metadata:
        raise RuleError("a dtype with metadata cannot be sent; convert the array with astype to one without")
    if dtype.char not in NATIVE or not dtype.isnative:
        raise RuleError(f"an array of dtype {dtype} cannot be sent; convert it with astype to a number of this machine")


def plain_array(given: Any) -> Array:
    """Converts what a player passes to an ordinary array."""
    refuse_masked(given)
    return asarray(given)


def whole_number(given: Any, what: str) -> int:
    """Converts an integer of Python or numpy to `int`."""
    try:
        return index(given)
    except TypeError:
        raise RuleError(SAYS("no whole number", what=what, got=short(given))) from None


def device_numbers(given: Any) -> tuple[int, ...]:
    """Converts a player's list of devices to a tuple."""
    if isinstance(given, Set):
        raise RuleError(f"give devices as a list, because their order matters; got the set {short(given)}")
    try:
        return tuple([index(member) for member in given])
    except TypeError:
        raise RuleError(SAYS("no list of devices", got=short(given))) from None


def checked_group(group: Sequence[int] | None, device: int, size: int) -> tuple[int, ...]:
    """A group of devices as a tuple, in the given order; None means all devices."""
    if group is None:
        return tuple(range(size))
    chosen = tuple(group)
    for member in chosen:
        require_exists(member, size)
    if len(set(chosen)) < len(chosen):
        raise RuleError(f"group {chosen} names a device twice; name each once")
    if device not in chosen:
        raise RuleError(SAYS("not in group", device=device, group=chosen))
    return chosen


def checked_partner(given: Any, device: int, size: int) -> int:
    """The other device of a message to or from `device`."""
    partner = whole_number(given, "a device")
    require_exists(partner, size)
    if partner == device:
        raise RuleError("a device cannot send to or receive from itself; keep the array in a variable")
    return partner


def require_exists(device: int, size: int) -> None:
    if not 0 <= device < size:
        there = f"there are {size} devices, 0 to {size - 1}" if size > 1 else "device 0 is the only one"
        raise RuleError(SAYS("no such device", device=device, there=there))

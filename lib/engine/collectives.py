"""Defines each collective once, as a pure function from the arrays of all devices to the results of all devices.

Every transport is tested against these functions. `n` is the number of devices in the group, S the bytes of the
array that one device contributes. The arrays have one shape and dtype and are not changed; every result is a new array,
which its device may write to.

Bytes sent by one device are those of a ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms
for clusters of workstations", section 3).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import concatenate, empty  # by name: a metered run counts what players make with np.empty
from numpy.typing import NDArray

Array = NDArray[Any]

REDUCTIONS = ("sum", "avg", "max", "min", "prod")
"""Elementwise reductions, applied in the order of the devices."""

ALONG_AN_AXIS = frozenset(("all_gather", "reduce_scatter", "all_to_all"))
"""Collectives that join or cut arrays along an axis."""

COLLECTIVES = ALONG_AN_AXIS | {"all_reduce"}
"""Calls that all devices of a group make together to exchange arrays; a barrier carries none."""

_UFUNCS = {"sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


def all_reduce(arrays: Sequence[Array], op: str = "sum") -> list[Array]:
    """Gives every device the reduction of all arrays, with the same shape. Sends 2(n-1)/n S bytes."""
    total = reduce_arrays(arrays, op)
    return [total, *(total.copy() for _ in arrays[1:])]


def reduce_arrays(arrays: Sequence[Array], op: str, out: Array | None = None) -> Array:
    """Reduces the arrays into `out`, of the right shape and dtype, or into a new array. Keeps the dtype, except that
    the average of whole numbers is float64."""
    function = _UFUNCS[op]
    total = empty(arrays[0].shape, reduced_dtype(op, arrays[0].dtype)) if out is None else out
    if len(arrays) == 1:
        total[...] = arrays[0]
    elif total.dtype == arrays[0].dtype:
        function(arrays[0], arrays[1], out=total)
    else:
        function(arrays[0], arrays[1], out=total, dtype=total.dtype.type)  # an average of int8 cannot wrap
    for array in arrays[2:]:
        function(total, array, out=total)
    return np.divide(total, _scalar(len(arrays), total.dtype), out=total) if op == "avg" else total


def reduced_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a reduction's result."""
    return np.dtype(np.float64) if op == "avg" and dtype.kind in "biu" else dtype


def _scalar(n: int, dtype: np.dtype[Any]) -> Any:
    """Converts `n` to the array's precision: under numpy 1 rules a 0-d float32 would turn into a float64."""
    return dtype.type(n) if dtype.kind in "fc" else n


def all_gather(arrays: Sequence[Array], axis: int = 0) -> list[Array]:
    """Gives every device all arrays joined along `axis`, n times as long there; scalars become a vector of n.
    Sends (n-1) S bytes."""
    whole = joined(arrays, axis)
    return [whole, *(whole.copy() for _ in arrays[1:])]


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """The arrays one after another along `axis`; scalars as a vector. Keeps the byte order, which `concatenate` alone
    would not."""
    parts = [a[None] for a in arrays] if arrays[0].ndim == 0 else arrays
    if parts[0].dtype.isnative:
        return concatenate(parts, axis)
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    return concatenate(parts, axis, out=empty(shape, parts[0].dtype))


def cut(array: Array, n: int, axis: int) -> Array:
    """A view of n equal parts along `axis`, as the new first axis."""
    axis %= array.ndim
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    parts = array.reshape(*before, n, array.shape[axis] // n, *after)
    return parts.transpose(axis, *range(axis), *range(axis + 1, parts.ndim)) if axis else parts


def reduce_scatter(arrays: Sequence[Array], op: str = "sum", axis: int = 0) -> list[Array]:
    """Reduces all arrays and gives the i-th device the i-th of n equal parts along `axis`.
    Sends (n-1)/n S bytes."""
    pieces = [cut(array, len(arrays), axis) for array in arrays]
    return [reduce_arrays([parts[i] for parts in pieces], op) for i in range(len(arrays))]


def all_to_all(arrays: Sequence[Array], axis: int = 0) -> list[Array]:
    """Exchanges parts: each device cuts its array into n equal parts along `axis` and sends the i-th to the i-th
    device, which joins the parts it gets in device order: the same shape. Sends (n-1)/n S bytes."""
    pieces = [cut(array, len(arrays), axis) for array in arrays]
    return [joined([parts[i] for parts in pieces], axis) for i in range(len(arrays))]


def payload_bytes(array: Array) -> int:
    """Bytes of an array that is sent on its own; for an empty array those of its shape, 8 for each dimension."""
    return array.nbytes or 8 * array.ndim


def bytes_sent(name: str, nbytes: int, n: int) -> int:
    """Bytes that one of `n` devices sends when it contributes `nbytes` to the operation `name`."""
    match name:
        case "all_reduce":
            return 2 * (n - 1) * nbytes // n
        case "all_gather":
            return (n - 1) * nbytes
        case "reduce_scatter" | "all_to_all":
            return (n - 1) * nbytes // n
        case "send" | "send_async":
            return nbytes
    return 0

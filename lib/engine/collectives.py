"""Defines each collective once, as a pure function from the arrays of all devices to the results of all devices.

Every transport is tested against these functions. `n` is the number of devices in the group, S the bytes of the
array that one device contributes. The arrays have one shape and dtype and are not changed; every result is a new array,
which its device may write to.

A device sends as many bytes as in a ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms
for clusters of workstations", section 3).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy import ascontiguousarray, concatenate, empty  # by name: a metered run counts what players make with np.empty
from numpy.typing import NDArray

Array = NDArray[Any]

Devices = Sequence[int] | None
"""The positions in the group whose results are wanted; None: all."""

REDUCTIONS = ("sum", "avg", "max", "min", "prod")
"""Elementwise reductions, applied in the order of the devices."""

ALONG_AN_AXIS = frozenset(("all_gather", "reduce_scatter", "all_to_all"))
"""Collectives that join or cut arrays along an axis."""

COLLECTIVES = ALONG_AN_AXIS | {"all_reduce"}
"""Calls that all devices of a group make together to exchange arrays; a barrier carries none."""

_UFUNCS = {"sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}


BLOCK_BYTES = 1 << 16
"""Larger arrays are reduced block by block: the blocks of all devices fit into a processor's cache."""


SPREAD_BYTES = 1 << 18
"""Bytes of an array that are copied to all devices before the next ones; they fit into a processor's cache."""


def all_reduce(arrays: Sequence[Array], op: str = "sum", only: Devices = None) -> list[Array]:
    """Gives every device the reduction of all arrays, with the same shape. Sends 2(n-1)/n S bytes."""
    total = reduced(arrays, op)
    return [total, *(total.copy() for _ in _positions(arrays, only)[1:])]


def _positions(arrays: Sequence[Array], only: Devices) -> Sequence[int]:
    return range(len(arrays)) if only is None else only


def reduced(arrays: Sequence[Array], op: str) -> Array:
    """The reduction of the arrays, in their order. Keeps the dtype, except that the average of whole numbers is
    float64."""
    first, dtype = arrays[0], reduced_dtype(op, arrays[0].dtype)
    if first.nbytes <= BLOCK_BYTES and len(arrays) > 1 and first.ndim and dtype is first.dtype:
        total: Array = _UFUNCS[op](first, arrays[1], order="C")  # faster than into an array that is made before
        _reduce_others(total, arrays, op)
        return total
    total = empty(first.shape, dtype)
    reduce_into(total, arrays, op)
    return total


def reduce_into(total: Array, arrays: Sequence[Array], op: str) -> None:
    """Writes the reduction into an array of the right shape and dtype."""
    if total.nbytes <= BLOCK_BYTES or not all(array.flags.c_contiguous for array in (total, *arrays)):
        _reduce(total, arrays, op)
        return
    flat, flats, step = total.reshape(-1), [array.reshape(-1) for array in arrays], BLOCK_BYTES // total.itemsize
    for start in range(0, flat.size, step):
        block = slice(start, start + step)
        _reduce(flat[block], [array[block] for array in flats], op)


def _reduce(total: Array, arrays: Sequence[Array], op: str) -> None:
    if len(arrays) == 1:
        total[...] = arrays[0]
    elif total.dtype == arrays[0].dtype:
        _UFUNCS[op](arrays[0], arrays[1], out=total)
    else:
        _UFUNCS[op](arrays[0], arrays[1], out=total, dtype=total.dtype.type)  # an average of int8 cannot wrap
    _reduce_others(total, arrays, op)


def _reduce_others(total: Array, arrays: Sequence[Array], op: str) -> None:
    """Reduces the third and all later arrays into `total`, which holds the reduction of the first two."""
    for array in arrays[2:]:
        _UFUNCS[op](total, array, out=total)
    if op == "avg":
        np.divide(total, _scalar(len(arrays), total.dtype), out=total)


def reduced_dtype(op: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.float64) if op == "avg" and dtype.kind in "biu" else dtype


def _scalar(n: int, dtype: np.dtype[Any]) -> Any:
    """Converts `n` to the array's precision: under numpy 1 rules a 0-d float32 would turn into a float64."""
    return dtype.type(n) if dtype.kind in "fc" else n


def all_gather(arrays: Sequence[Array], axis: int = 0, only: Devices = None) -> list[Array]:
    """Gives every device all arrays joined along `axis`, n times as long there; scalars become a vector of n.
    Sends (n-1) S bytes."""
    devices = _positions(arrays, only)
    if arrays[0].nbytes <= BLOCK_BYTES:
        whole = joined(arrays, axis)
        return [whole, *(whole.copy() for _ in devices[1:])]
    shape = list(arrays[0].shape)
    shape[axis] *= len(arrays)
    wholes = [empty(tuple(shape), arrays[0].dtype) for _ in devices]
    places = [cut(whole, len(arrays), axis) for whole in wholes]
    for i, array in enumerate(arrays):
        _spread(array, [place[i] for place in places])
    return wholes


def _spread(array: Array, places: Sequence[Array]) -> None:
    """Copies an array to several places block by block, so that it is read from memory only once."""
    rows = max(1, len(array) * SPREAD_BYTES // array.nbytes)
    for start in range(0, len(array), rows):
        block = slice(start, start + rows)
        for place in places:
            place[block] = array[block]


def joined(arrays: Sequence[Array], axis: int) -> Array:
    """The arrays one after another along `axis`; scalars become a vector."""
    parts = [a[None] for a in arrays] if arrays[0].ndim == 0 else arrays
    if len(parts) * parts[0].nbytes <= BLOCK_BYTES:
        return ascontiguousarray(concatenate(parts, axis))  # which keeps the memory order that all parts have
    shape = list(parts[0].shape)
    shape[axis] *= len(parts)
    return concatenate(parts, axis, out=empty(tuple(shape), parts[0].dtype))


def cut(array: Array, n: int, axis: int) -> Array:
    """A view of n equal parts along `axis`, as the new first axis."""
    if axis == 0:
        return array.reshape(n, len(array) // n, *array.shape[1:])
    axis %= array.ndim
    before, after = array.shape[:axis], array.shape[axis + 1 :]
    parts = array.reshape(*before, n, array.shape[axis] // n, *after)
    return parts.transpose(axis, *range(axis), *range(axis + 1, parts.ndim)) if axis else parts


def reduce_scatter(arrays: Sequence[Array], op: str = "sum", axis: int = 0, only: Devices = None) -> list[Array]:
    """Reduces all arrays and gives the i-th device the i-th of n equal parts along `axis`.
    Sends (n-1)/n S bytes."""
    n = len(arrays)
    devices = _positions(arrays, only)
    if arrays[0].nbytes <= BLOCK_BYTES:  # one reduction and n copies take less time than n reductions
        parts = cut(reduced(arrays, op), n, axis)
        return [parts[i].copy() for i in devices]
    pieces = [cut(array, n, axis) for array in arrays]
    return [reduced([parts[i] for parts in pieces], op) for i in devices]


def all_to_all(arrays: Sequence[Array], axis: int = 0, only: Devices = None) -> list[Array]:
    """Exchanges parts: each device splits its array into n equal parts along `axis`, sends the i-th to the i-th device,
    and joins the parts that it gets in device order. The shape stays the same. Sends (n-1)/n S bytes."""
    n, shape, axis = len(arrays), arrays[0].shape, axis % arrays[0].ndim
    devices = _positions(arrays, only)
    if arrays[0].nbytes <= BLOCK_BYTES:  # one array of all parts and n copies take less time than n * n parts
        by_sender = joined(arrays, axis).reshape(*shape[:axis], n, n, shape[axis] // n, *shape[axis + 1 :])
        to: Any = (slice(None),) * (axis + 1)
        return [ascontiguousarray(by_sender[*to, i].reshape(shape)) for i in devices]
    pieces = [cut(array, n, axis) for array in arrays]
    return [joined([parts[i] for parts in pieces], axis) for i in devices]


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

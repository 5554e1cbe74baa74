"""The collectives: what each computes, what it sends, and whether the devices of a group make the same call.

Each collective is one pure function from the arrays of all devices to the results of all devices. Transports are tested
against these functions, and the one in this process calls them. The bytes that a device is charged are those of a ring,
whatever a transport sends: a charge by messages would differ between MPI, torch and this process. A device describes
its call as data, so that a mismatch is found before anything is carried; an MPI may return garbage instead.

When devices meet and how arrays travel is left to the transports, and when a call is charged to `engine`.
"""

from collections.abc import Sequence, Set
from functools import lru_cache
from math import prod
from operator import index
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
from numpy import (
    asarray,
    ascontiguousarray,
    concatenate,
    empty,
)  # by name: a metered run counts what players make with np.asarray
from numpy.typing import NDArray

from lib.errors import MismatchError, RuleError, Sentences, refuse_masked

# --- Each collective as a pure function from the arrays of all devices to the results of all devices ---
#
# `n` is the number of devices in the group, S the bytes of the array
# that one device contributes. The arrays have one shape and dtype and are not changed; every result is a new array,
# which its device may write to.
#
# A device sends as many bytes as in a ring (Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms for
# clusters of workstations", section 3).

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
"""Larger arrays are cut before they are joined or reduced, so that no number is copied twice."""


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
    if len(arrays) > 1 and first.ndim and dtype is first.dtype:
        total: Array = _UFUNCS[op](first, arrays[1], order="C")  # faster than into an array that is made before
        _reduce_others(total, arrays, op)
        return total
    total = empty(first.shape, dtype)
    reduce_into(total, arrays, op)
    return total


def reduce_into(total: Array, arrays: Sequence[Array], op: str) -> None:
    """Writes the reduction into an array of the right shape and dtype."""
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


# --- Validates what players pass to the engine: device numbers, groups, and arrays that can be sent ---
#
# The meters count bytes of array elements, so nothing else may be sent with them: no Python objects, field names, dtype
# metadata, or numbers disguised as the shape of an empty array.

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


# --- Describes one collective call, so that the members of a group can check that they all make the same one ---

TORCH = "torch."


def dtype_code(dtype: Any) -> str:
    """The short form of a dtype of numpy ('<f4'), or the name of a dtype of torch ('torch.float32')."""
    return dtype.str if isinstance(dtype, np.dtype) else str(dtype)


class BytesSent(NamedTuple):
    """Bytes that a device sends in one call. `unpacked` counts each number as `unpacked_bytes` does."""

    sent: int = 0
    unpacked: int = 0


class CollectiveCall(NamedTuple):
    """One device's side of a collective; all devices of a group must describe the same call. `dtype` is a `dtype_code`;
    `traffic` is what each device sends, as a meter counts it."""

    name: str
    op: str
    axis: int
    shape: tuple[int, ...]
    dtype: str
    group: tuple[int, ...]
    traffic: BytesSent = BytesSent()

    def __str__(self) -> str:
        """As shown in messages: "all_reduce(float32 (2, 3), op='sum')"."""
        known = self.dtype.startswith(TORCH) or not self.dtype
        dtype = self.dtype.removeprefix(TORCH) if known else np.dtype(self.dtype)
        what = [f"{dtype} {self.shape}"] if self.dtype else []
        what += [f"op={self.op!r}"] if self.op else []
        what += [f"axis={self.axis}"] if self.name in ALONG_AN_AXIS else []
        return f"{self.name}({', '.join(what)})"


@lru_cache(maxsize=4096)
def collective_call(
    name: str,
    op: str,
    axis: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    members: Sequence[int] | None,
    device: int,
    size: int,
) -> CollectiveCall:
    """Describes the call that `device` of `size` makes with an array in a group of `members` (None: all), after all
    checks that one device can make on its own. Cached, because a model repeats the same few calls.
    """
    group = checked_group(members, device, size)
    require_sendable(shape, dtype)
    if name in ("all_reduce", "reduce_scatter") and op not in REDUCTIONS:
        raise RuleError(f"there is no reduction {op!r}; there are {', '.join(REDUCTIONS)}")
    if name in ALONG_AN_AXIS:
        axis = _checked_axis(name, shape, axis, len(group))
    sizes = (prod(shape) * size for size in (dtype.itemsize, unpacked_bytes(dtype)))
    traffic = BytesSent(*(bytes_sent(name, nbytes, len(group)) for nbytes in sizes))
    return _shared(CollectiveCall(name, op, axis, tuple(shape), dtype_code(dtype), group, traffic))


@lru_cache(maxsize=4096)
def _shared(call: CollectiveCall) -> CollectiveCall:
    """Makes the equal calls of several devices one object, so that comparing them is quick."""
    return call


@lru_cache(maxsize=4096)
def message_traffic(partner: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, size: int) -> BytesSent:
    """The bytes that a message with an array from `device` to `partner` sends, after all checks. Cached like
    `collective_call`."""
    checked_partner(partner, device, size)
    require_sendable(shape, dtype)
    return with_form(shape, dtype)


WORD = 8
"""Bytes of the smallest message, and of each number that describes its shape."""


FLOAT = 4


def with_form(shape: tuple[int, ...], dtype: np.dtype[Any], words: int = 0) -> BytesSent:
    """The bytes of a message: its contents, at least one word, and one word for each dimension beyond the first,
    because shapes could carry numbers. The length of the first dimension follows from the contents. `words` are
    added."""
    form = WORD * (max(len(shape) - 1, 0) + words)
    return BytesSent(*(max(prod(shape) * size, WORD) + form for size in (dtype.itemsize, unpacked_bytes(dtype))))


def unpacked_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes of one number when none are packed: 4 for a boolean or a float of at most 32 bits; otherwise twice its size
    and at least 8, because a wide number or an integer has room for the digits of several."""
    narrow = dtype.itemsize <= FLOAT and getattr(dtype, "kind", "f") in "fb"
    return FLOAT if narrow else max(2 * dtype.itemsize, WORD)


def put_traffic(shape: tuple[int, ...], dtype: np.dtype[Any], strides: Sequence[int]) -> BytesSent:
    """The bytes of a put: those of a message, a word for its place, and one for each dimension whose elements are not
    contiguous at the target. `strides` are in bytes."""
    contiguous = [prod(shape[axis:]) * dtype.itemsize for axis in range(1, len(shape) + 1)]
    chosen = sum(n > 1 and step != packed for n, step, packed in zip(shape, strides, contiguous))
    return with_form(shape, dtype, 1 + chosen)


message_source = lru_cache(maxsize=4096)(checked_partner)
"""The device that a device receives from, after all checks. Cached like `collective_call`."""


def _checked_axis(name: str, shape: tuple[int, ...], axis: int, parts: int) -> int:
    """The axis counted from the front; every collective except all_gather splits it into equal parts."""
    ndim = len(shape) or (1 if name == "all_gather" else 0)
    if not ndim:
        raise RuleError("a scalar has no axis to cut; reshape it, or use all_reduce")
    if not -ndim <= axis < ndim:
        raise RuleError(f"there is no axis {axis} in an array of shape {shape}")
    axis %= ndim
    if name != "all_gather" and shape[axis] % parts:
        raise RuleError(
            f"axis {axis} of an array of shape {shape} cannot be cut into {parts} equal parts; "
            "choose another axis, or pad it"
        )
    return axis


def results_of(call: CollectiveCall, arrays: Sequence[Array], only: Devices = None) -> Sequence[Any]:
    """Every member's result, from the arrays of all members in the group's order; or `only` those at some positions."""
    match call.name:
        case "all_reduce":
            return all_reduce(arrays, call.op, only)
        case "all_gather":
            return all_gather(arrays, call.axis, only)
        case "reduce_scatter":
            return reduce_scatter(arrays, call.op, call.axis, only)
        case "all_to_all":
            return all_to_all(arrays, call.axis, only)
    return [None] * len(arrays if only is None else only)


def require_same_call(calls: Sequence[CollectiveCall], devices: Sequence[int]) -> None:
    for device, call in zip(devices[1:], calls[1:]):
        if call != calls[0]:
            raise MismatchError(
                SAYS(
                    "other calls",
                    first=devices[0],
                    call=_call_text(calls[0], call),
                    device=device,
                    other_call=_call_text(call, calls[0]),
                )
            )


def _call_text(call: CollectiveCall, other: CollectiveCall) -> str:
    return f"{call} in group {call.group}" if call.group != other.group else str(call)


SAYS = Sentences(
    {
        "no whole number": "{what} must be a whole number; got {got}",
        "no list of devices": "give devices as a list, such as [0, 1]; got {got}",
        "not in group": "device {device} is not in group {group}; only its members make this call",
        "no such device": "there is no device {device}; {there}",
        "other calls": "device {first} calls {call}, but device {device} calls {other_call}; every device of a group must make the same collective calls, with the same shapes, in the same order",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""

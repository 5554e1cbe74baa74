"""Describes one collective call, so that the members of a group can check that they all make the same one."""

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib.errors import MismatchError, RuleError

from . import collectives
from .arguments import checked_group, checked_partner, require_sendable
from .collectives import Array, Devices
from .words import SAYS

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
        what += [f"axis={self.axis}"] if self.name in collectives.ALONG_AN_AXIS else []
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
    if name in ("all_reduce", "reduce_scatter") and op not in collectives.REDUCTIONS:
        raise RuleError(f"there is no reduction {op!r}; there are {', '.join(collectives.REDUCTIONS)}")
    if name in collectives.ALONG_AN_AXIS:
        axis = _checked_axis(name, shape, axis, len(group))
    sizes = (prod(shape) * size for size in (dtype.itemsize, unpacked_bytes(dtype)))
    traffic = BytesSent(*(collectives.bytes_sent(name, nbytes, len(group)) for nbytes in sizes))
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
            return collectives.all_reduce(arrays, call.op, only)
        case "all_gather":
            return collectives.all_gather(arrays, call.axis, only)
        case "reduce_scatter":
            return collectives.reduce_scatter(arrays, call.op, call.axis, only)
        case "all_to_all":
            return collectives.all_to_all(arrays, call.axis, only)
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

"""Describes one collective call, so that the members of a group can check that they all make the same one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib.errors import MismatchError, RuleError

from . import collectives
from .arguments import checked_group, checked_partner, require_sendable
from .collectives import Array, Devices

TORCH = "torch."


def dtype_code(dtype: Any) -> str:
    """The short form of a dtype of numpy ('<f4'), or the name of a dtype of torch ('torch.float32')."""
    return dtype.str if isinstance(dtype, np.dtype) else str(dtype)


class CollectiveCall(NamedTuple):
    """One device's side of a collective: the descriptions of all devices of a group must be equal. `dtype` is a
    `dtype_code`; `sent` is the bytes that each device sends, as a meter counts them."""

    name: str
    op: str
    axis: int
    shape: tuple[int, ...]
    dtype: str
    group: tuple[int, ...]
    sent: int = 0

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

    Raises:
        RuleError: no such operation, axis or device, an axis that cannot be cut evenly, or a dtype that cannot be sent.
    """
    group = checked_group(members, device, size)
    require_sendable(shape, dtype)
    if name in ("all_reduce", "reduce_scatter"):
        _require_reduction(op)
    if name in collectives.ALONG_AN_AXIS:
        axis = _checked_axis(name, shape, axis, len(group))
    sent = collectives.bytes_sent(name, prod(shape) * dtype.itemsize, len(group))
    return _shared(CollectiveCall(name, op, axis, tuple(shape), dtype_code(dtype), group, sent))


@lru_cache(maxsize=4096)
def _shared(call: CollectiveCall) -> CollectiveCall:
    """Equal calls of several devices as one object, which is compared at once."""
    return call


@lru_cache(maxsize=4096)
def message_bytes(partner: int, shape: tuple[int, ...], dtype: np.dtype[Any], device: int, size: int) -> int:
    """The bytes of a message with an array from `device` to its `partner`, after all checks. Cached as above.

    Raises:
        RuleError: there is no such device, it is the same one, or the array cannot be sent.
    """
    checked_partner(partner, device, size)
    require_sendable(shape, dtype)
    return _bytes_with_form(shape, dtype, FLOAT)


FLOAT, WORD = 4, 8
"""The least bytes of a message; those of a put, which also has a place, and of each dimension beyond the third."""

PLAIN_DIMENSIONS = 3


def put_bytes(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The bytes of a put."""
    return _bytes_with_form(shape, dtype, WORD)


def _bytes_with_form(shape: tuple[int, ...], dtype: np.dtype[Any], least: int) -> int:
    """The bytes of the contents, or of the shape if it is empty; a form that could carry numbers is charged, too."""
    contents = prod(shape) * dtype.itemsize or WORD * min(len(shape), PLAIN_DIMENSIONS)
    return max(contents, least) + WORD * max(len(shape) - PLAIN_DIMENSIONS, 0)


@lru_cache(maxsize=4096)
def message_source(partner: int, device: int, size: int) -> int:
    """The device that `device` receives from, after all checks. Cached as above.

    Raises:
        RuleError: there is no such device, or it is the same one.
    """
    return checked_partner(partner, device, size)


def _require_reduction(op: str) -> None:
    if op not in collectives.REDUCTIONS:
        raise RuleError(f"there is no reduction {op!r}; there are {', '.join(collectives.REDUCTIONS)}")


def _checked_axis(name: str, shape: tuple[int, ...], axis: int, parts: int) -> int:
    """The axis counted from the front, which every collective except all_gather cuts into equal parts."""
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
    """Compares the calls that `devices` make.

    Raises:
        MismatchError: names the first two devices that differ, and what each called.
    """
    for device, call in zip(devices[1:], calls[1:]):
        if call != calls[0]:
            raise MismatchError(
                f"device {devices[0]} calls {_call_text(calls[0], call)}, but "
                f"device {device} calls {_call_text(call, calls[0])}; "
                "every device of a group must make the same collective calls, with the same shapes, in the same order"
            )


def _call_text(call: CollectiveCall, other: CollectiveCall) -> str:
    return f"{call} in group {call.group}" if call.group != other.group else str(call)

"""What a device asks for: one call, how people read it, and whether the calls of a group agree."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import lru_cache
from math import prod
from operator import index
from reprlib import repr as short
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from lib.errors import MismatchError, RuleError

from . import collectives
from .collectives import Array


class Call(NamedTuple):
    """One collective call: all devices of a group must make the same. `dtype` as numpy spells it ('<f4'); `sent` is
    the bytes that each device sends for it, as a meter counts them."""

    name: str
    op: str
    axis: int
    shape: tuple[int, ...]
    dtype: str
    group: tuple[int, ...]
    sent: int = 0

    def __str__(self) -> str:
        """As a message tells it: "all_reduce(float32 (2, 3), op='sum')"."""
        what = [f"{np.dtype(self.dtype)} {self.shape}"] if self.dtype else []
        what += [f"op={self.op!r}"] if self.op else []
        what += [f"axis={self.axis}"] if self.name in ("all_gather", "reduce_scatter", "all_to_all") else []
        return f"{self.name}({', '.join(what)})"


@lru_cache(maxsize=4096)
def call_of(
    name: str,
    op: str,
    axis: int,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    members: Sequence[int] | None,
    device: int,
    size: int,
) -> Call:
    """The call that `device` of `size` makes with an array, in a group with these members (None: all), checked as far
    as one device can tell. Remembered, for a model makes the same few calls again and again.

    Raises:
        RuleError: no such operation, axis or device, a length that cannot be cut, or a dtype that cannot travel.
    """
    group = group_of(members, device, size)
    require_plain(shape, dtype)
    if name in ("all_reduce", "reduce_scatter"):
        if op not in collectives.OPS:
            raise RuleError(f"there is no reduction {op!r}; there are {', '.join(collectives.OPS)}")
        if dtype.kind not in "biufc":
            raise RuleError(f"arrays of dtype {dtype} cannot be reduced; convert them to numbers first")
    if name in ("all_gather", "reduce_scatter", "all_to_all"):
        axis = _axis(name, shape, axis)
        if name != "all_gather" and shape[axis] % len(group):
            raise RuleError(
                f"axis {axis} of an array of shape {shape} cannot be cut into {len(group)} equal parts; "
                "choose another axis, or pad it"
            )
    sent = collectives.bytes_sent(name, prod(shape) * dtype.itemsize, len(group))
    return Call(name, op, axis, shape, dtype.str, group, sent)


EMPTY = 1 << 16
"""How large an empty array's other axes may be together, times the bytes of an element."""


def require_plain(shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuses what cannot travel, or would say more than the bytes that a meter counts: in names, or in its shape.

    Raises:
        RuleError: Python objects, named fields, notes on the dtype, or an empty array with a long axis.
    """
    if dtype.hasobject:
        raise RuleError(f"arrays of Python objects cannot be sent; got dtype {dtype}, so convert it with astype first")
    if dtype.names:
        raise RuleError(f"an array with named fields ({', '.join(dtype.names)}) cannot travel; bring each by itself")
    if dtype.metadata:
        raise RuleError("a dtype with metadata cannot travel; convert the array with astype to one without")
    if 0 in shape and prod(n for n in shape if n) * dtype.itemsize > EMPTY:
        raise RuleError(
            f"an array of {dtype} {shape} is empty, so only its shape would be sent, which no meter counts; "
            "send numbers as the elements of an array"
        )


def whole(given: Any, what: str) -> int:
    """A whole number that is one of Python or of numpy.

    Raises:
        RuleError: it is none.
    """
    try:
        return index(given)
    except TypeError:
        raise RuleError(f"{what} is a whole number; got {short(given)}") from None


def members_of(group: Any) -> tuple[int, ...]:
    """The devices that a player names.

    Raises:
        RuleError: it is no list of whole numbers.
    """
    try:
        return tuple([index(member) for member in group])
    except TypeError:
        raise RuleError(f"devices are named in a list, as in [0, 1]; got {short(group)}") from None


def _axis(name: str, shape: tuple[int, ...], axis: int) -> int:
    ndim = len(shape) or (1 if name == "all_gather" else 0)
    if not ndim:
        raise RuleError("a scalar has no axis to cut; reshape it, or use all_reduce")
    if not -ndim <= axis < ndim:
        raise RuleError(f"there is no axis {axis} in an array of shape {shape}")
    return axis % ndim


def perform(call: Call, arrays: Sequence[Array]) -> Sequence[Any]:
    """The results of a collective for which the arrays of all devices are here."""
    match call.name:
        case "all_reduce":
            return collectives.all_reduce(arrays, call.op)
        case "all_gather":
            return collectives.all_gather(arrays, call.axis)
        case "reduce_scatter":
            return collectives.reduce_scatter(arrays, call.op, call.axis)
        case "all_to_all":
            return collectives.all_to_all(arrays, call.axis)
    return [None] * len(arrays)


def agree(calls: Sequence[Call], devices: Sequence[int]) -> None:
    """Nothing, if all devices make the same call.

    Raises:
        MismatchError: naming the first two devices that differ, and what each called.
    """
    for device, call in zip(devices[1:], calls[1:]):
        if call != calls[0]:
            raise MismatchError(
                f"device {devices[0]} calls {_told(calls[0], call)}, but "
                f"device {device} calls {_told(call, calls[0])}; "
                "every device of a group must make the same collective calls, with the same shapes, in the same order"
            )


def _told(call: Call, other: Call) -> str:
    return f"{call} in group {call.group}" if call.group != other.group else str(call)


def told_in_group(what: object, size: int) -> str:
    """What a device waits in, with its group if that is not all devices."""
    return f"{what} in group {what.group}" if isinstance(what, Call) and len(what.group) < size else str(what)


def group_of(group: Sequence[int] | None, device: int, size: int) -> tuple[int, ...]:
    """A group of devices as a tuple, in its own order; None is all of them.

    Raises:
        RuleError: a device that does not exist or comes twice, or a group without the caller.
    """
    if group is None:
        return tuple(range(size))
    chosen = tuple(group)
    for member in chosen:
        if not 0 <= member < size:
            raise RuleError(f"there is no device {member}; there are {size} devices, 0 to {size - 1}")
    if len(set(chosen)) < len(chosen):
        raise RuleError(f"group {chosen} names a device twice; name each once")
    if device not in chosen:
        raise RuleError(f"device {device} is not in group {chosen}; only its members make this call")
    return chosen


class Number(int):
    """A number that also answers when called: some published chapters write `self.num_devices()`."""

    __slots__ = ()

    def __call__(self) -> int:
        return int(self)


def place_in(frame: FrameType | None) -> str:
    """', line 12 of mine.py': the innermost line outside the engine and numpy; '' where no frame is known."""
    while frame is not None:
        package = frame.f_globals.get("__package__") or ""
        if package.split(".")[:2] != ["lib", "engine"] and package.split(".")[0] != "numpy":
            return f", line {frame.f_lineno} of {os.path.basename(frame.f_code.co_filename)}"
        frame = frame.f_back
    return ""


def place_here() -> str:
    """The same of the running code."""
    return place_in(sys._getframe(1))

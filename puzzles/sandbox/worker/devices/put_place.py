"""Checks where a put would write, by the buffers that the judge knows."""

from __future__ import annotations

from collections.abc import Sequence

from lib.engine.transports.base import Put


def is_within(put: Put, buffers: Sequence[int]) -> bool:
    """True if every element of a put lies in one of the symmetric buffers, given by their bytes."""
    shape, strides, itemsize = put.content.shape, put.strides, put.content.dtype.itemsize
    if not 0 <= put.buffer < len(buffers) or len(strides) != len(shape):
        return False
    if any(type(stride) is not int for stride in strides):
        return False
    reach = [(n - 1) * stride for n, stride in zip(shape, strides) if n]
    first = put.offset + sum(min(step, 0) for step in reach)
    last = put.offset + sum(max(step, 0) for step in reach)
    return bool(first >= 0 and last + itemsize * bool(put.content.size) <= buffers[put.buffer])

"""Checks where a put would write, by the buffers that the judge knows."""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np

from lib.engine.transports.base import Put


class BufferForm(NamedTuple):
    """What a device has said of a symmetric buffer, as all others have."""

    nbytes: int
    dtype: np.dtype[Any]


def placed(put: Put, buffers: Sequence[BufferForm]) -> Put | None:
    """The put with the strides that matter, if it is of its buffer's dtype and all of its elements are elements of the
    buffer; else None."""
    shape = put.content.shape
    if not 0 <= put.buffer < len(buffers) or len(put.strides) != len(shape):
        return None
    nbytes, dtype = buffers[put.buffer]
    steps = (put.offset, *put.strides)
    if put.content.dtype != dtype or any(type(step) is not int or step % dtype.itemsize for step in steps):
        return None
    if not put.content.size:
        return put._replace(offset=0, strides=(0,) * len(shape))
    reach = [(n - 1) * step for n, step in zip(shape, put.strides)]
    first = put.offset + sum(min(step, 0) for step in reach)
    last = put.offset + sum(max(step, 0) for step in reach)
    if first < 0 or last + dtype.itemsize > nbytes:
        return None
    packed = [prod(shape[axis:]) * dtype.itemsize for axis in range(1, len(shape) + 1)]
    return put._replace(strides=tuple(step if n > 1 else full for n, step, full in zip(shape, put.strides, packed)))

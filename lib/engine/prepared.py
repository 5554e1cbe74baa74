"""Small collectives in buffers of a fixed place: which numpy calls give a device's result is worked out once."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy import empty

from . import collectives
from .call import CollectiveCall, results_of
from .collectives import Array


def prepared_result(call: CollectiveCall, parts: Array, index: int) -> Callable[[], Array]:
    """What returns the result of the member at `index` whenever it is called: a new array in C order.

    `parts` is a view of the buffers, which then hold the arrays of all members along its first axis."""
    n, shape, axis = len(parts), call.shape, call.axis
    if call.name == "all_gather":
        whole = [n] if not shape else [n * length if i == axis else length for i, length in enumerate(shape)]
        return _arranged(np.moveaxis(parts, 0, axis), tuple(whole))
    if call.name == "all_to_all":
        pieces = parts.reshape(n, *shape[:axis], n, shape[axis] // n, *shape[axis + 1 :])
        to_here: Any = (slice(None),) * (axis + 1)
        return _arranged(np.moveaxis(pieces[*to_here, index], 0, axis), shape)
    arrays = [parts[i, ...] for i in range(n)]
    if shape and parts.dtype.isnative and collectives.reduced_dtype(call.op, parts.dtype) == parts.dtype:
        if call.name == "reduce_scatter":
            arrays = [collectives.cut(array, n, axis)[index] for array in arrays]
        return partial(collectives.reduced_to_new, arrays, call.op)
    return lambda: results_of(call, arrays, only=(index,))[0]


def _arranged(view: Array, shape: tuple[int, ...]) -> Callable[[], Array]:
    """What copies the elements of a view to a new array of some shape."""
    if not view.size:
        return partial(empty, shape, view.dtype)
    seen = view.reshape(shape)
    return seen.copy if np.may_share_memory(seen, view) else partial(view.reshape, shape)

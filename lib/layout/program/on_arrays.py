"""Each kind of operator on numpy arrays: the output's piece from the inputs' pieces."""

from collections.abc import Callable, Mapping
from math import erf
from typing import Any, NamedTuple

import numpy as np

from lib.layout.layouts.pieces import Array

RATE = 0.125
"""Learning rate of the updates: a power of two, so that SGD on small whole numbers is exact."""
MOMENTUM, SQUARES, EPSILON = 0.5, 0.75, 1.0
"""Decay of the first moment and of the second, and what is added to its root (Kingma and Ba 2015): much, so that it
never magnifies rounding."""


class Task(NamedTuple):
    """The pieces of an operator's inputs, its settings, and the shape of its output's piece."""

    arrays: list[Array]
    settings: Mapping[str, Any]
    shape: tuple[int, ...]
    whole: tuple[tuple[int, ...], ...]
    """Shapes of the whole inputs."""
    offset: int = 0
    """Where this part of a table starts, in rows."""


_erf = np.vectorize(erf, otypes=[np.float64])


def _normal(x: Array) -> Array:
    cdf: Array = 0.5 * (1 + _erf(x / np.sqrt(2.0)))
    return cdf


def _sigmoid(x: Array) -> Array:
    sigmoid: Array = 1 / (1 + np.exp(-x))
    return sigmoid


UNARY: Mapping[str, Callable[[Array], Array]] = {
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * _normal(x),
    "silu": lambda x: x * _sigmoid(x),
    "exp": np.exp,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "tanh": np.tanh,
    "negative": np.negative,
    "logistic": _sigmoid,
    "reciprocal": lambda x: 1 / x,
    "sqrt": np.sqrt,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "erf": lambda x: np.asarray(_erf(x)),
}
"""Kinds that map each element."""

BINARY: Mapping[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}
"""Kinds that combine elements; the second input is broadcast to the first."""

RELATIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
    "not_equal": np.not_equal,
}
"""What a compare asks of each pair of elements."""

SLOPE: Mapping[str, tuple[str, Callable[[Array], Array]]] = {
    "relu": ("output", lambda y: (y > 0).astype(y.dtype)),
    "gelu": ("input", lambda x: _normal(x) + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)),
    "silu": ("input", lambda x: _sigmoid(x) * (1 + x * (1 - _sigmoid(x)))),
    "exp": ("output", lambda y: y),
    "rsqrt": ("output", lambda y: -0.5 * y**3),
    "tanh": ("output", lambda y: 1 - y * y),
    "logistic": ("output", lambda y: y * (1 - y)),
    "reciprocal": ("output", lambda y: -y * y),
    "sqrt": ("output", lambda y: 0.5 / y),
    "log": ("input", lambda x: 1 / x),
    "sin": ("input", np.cos),
    "cos": ("input", lambda x: -np.sin(x)),
    "erf": ("input", lambda x: 2 / np.sqrt(np.pi) * np.exp(-x * x)),
    "top_k": ("output", lambda y: (y != 0).astype(y.dtype)),
}
"""For a kind that maps elements: whether its derivative is computed from its input or its output, and how."""


def compute(kind: str, task: Task) -> Array:
    """The piece that an operator of this kind computes, with the dtype of its first input."""
    first = task.arrays[0]
    if kind in UNARY:
        piece = UNARY[kind](first)
    elif kind in BINARY:
        piece = BINARY[kind](first, task.arrays[1])
    elif kind.endswith("_grad") and kind.removesuffix("_grad") in SLOPE:
        piece = first * SLOPE[kind.removesuffix("_grad")][1](task.arrays[1])
    else:
        piece = KINDS[kind](task)
    if first.dtype.kind == "f" and piece.dtype.kind == "f":
        piece = piece.astype(first.dtype, copy=False)
    return np.asarray(piece)  # numpy returns a scalar instead of a 0-d array


def _matmul(task: Task) -> Array:
    a, b = task.arrays
    product: Array = _turned(a, task.settings["transpose_a"]) @ _turned(b, task.settings["transpose_b"])
    return product


def _turned(matrix: Array, turn: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if turn else matrix


def _softmax(task: Task) -> Array:
    (x,), axis = task.arrays, task.settings["axis"]
    raised = np.exp(x - x.max(axis=axis, keepdims=True))
    softmax: Array = raised / raised.sum(axis=axis, keepdims=True)
    return softmax


def _softmax_grad(task: Task) -> Array:
    (slope, y), axis = task.arrays, task.settings["axis"]
    grad: Array = y * (slope - (slope * y).sum(axis=axis, keepdims=True))
    return grad


def _mean(task: Task) -> Array:
    axis = task.settings["axis"]
    # divide by the full length, so that the summands of a split axis add up to the mean
    mean: Array = task.arrays[0].sum(axis=axis) / task.whole[0][axis]
    return mean


def _max(task: Task) -> Array:
    x, axis = task.arrays[0], task.settings["axis"]
    largest: Array = x.max(axis=axis) if x.shape[axis] else x.max(axis=axis, initial=-np.inf)  # a part that is padding
    return largest


def _compare(task: Task) -> Array:
    a, b = task.arrays
    return RELATIONS[task.settings["relation"]](a, b).astype(a.dtype)


def _repeat(task: Task) -> Array:
    wider = np.expand_dims(task.arrays[0] * task.settings["scale"], task.settings["axis"])
    return np.broadcast_to(wider, task.shape).copy()


def _slice(task: Task) -> Array:
    axis, start, stop = (task.settings[name] for name in ("axis", "start", "stop"))
    return np.take(task.arrays[0], np.arange(start, stop), axis=axis)


def _pad(task: Task) -> Array:
    widths = [(0, 0)] * task.arrays[0].ndim
    widths[task.settings["axis"]] = task.settings["before"], task.settings["after"]
    return np.pad(task.arrays[0], widths)


def _top_k(task: Task) -> Array:
    x, k = task.arrays[0], task.settings["k"]
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    kept = np.zeros(x.shape, dtype=bool)
    np.put_along_axis(kept, order, True, axis=-1)
    return np.where(kept, x, 0)


def _largest(task: Task) -> Array:
    x, k = task.arrays[0], task.settings["k"]
    order = np.argsort(-x, axis=-1, kind="stable")[..., :k]
    return order if task.settings["numbers"] else np.take_along_axis(x, order, axis=-1)


def _route(task: Task) -> Array:
    """Each token's gate at its expert and its place in that expert's queue; zeros for a token that finds it full."""
    gates, capacity = task.arrays[0], task.settings["capacity"]
    values = np.ones_like(gates) if task.settings["ones"] else gates
    chosen = gates.argmax(axis=-1)
    at_expert = np.eye(gates.shape[-1], dtype=np.int64)[chosen]
    place = (np.cumsum(at_expert, axis=-2) * at_expert).sum(axis=-1) - 1
    at_place = np.arange(capacity) == place[..., None]
    routed: Array = (values * at_expert)[..., None] * at_place[..., None, :]
    return routed


def _gather(task: Task) -> Array:
    """Rows of a table; zeros for rows that are not in this part of the table."""
    table, rows = task.arrays[0], task.arrays[1].astype(np.int64) - task.offset
    here = (rows >= 0) & (rows < len(table))
    if not len(table):  # this part is padding only
        return np.zeros((*rows.shape, *table.shape[1:]), dtype=table.dtype)
    return np.where(here[..., None], table[np.where(here, rows, 0)], 0).astype(table.dtype)


def _scatter(task: Task) -> Array:
    """A table whose rows are sums of the given ones, by row number; the rows of other parts are left out."""
    values, rows = task.arrays[0], task.arrays[1].astype(np.int64) - task.offset
    here = (rows >= 0) & (rows < task.shape[0])
    table = np.zeros(task.shape, dtype=values.dtype)
    np.add.at(table, rows[here], values[here])
    return table


def _moments(task: Task) -> Array:
    """The new optimizer state: the average gradient, and for Adam also the average of its squares."""
    state, grad = task.arrays
    parts = [MOMENTUM * state[0] + (1 - MOMENTUM) * grad]
    if len(state) > 1:
        parts.append(SQUARES * state[1] + (1 - SQUARES) * grad * grad)
    return np.stack(parts)


def _update(task: Task) -> Array:
    """The new weight: by its gradient (SGD), or by its optimizer state."""
    weight, by = task.arrays
    if by.ndim == weight.ndim:
        updated: Array = weight - RATE * by
    else:
        updated = weight - RATE * (by[0] / (np.sqrt(by[1]) + EPSILON) if len(by) > 1 else by[0])
    return updated


KINDS: Mapping[str, Callable[[Task], Array]] = {
    "matmul": _matmul,
    "einsum": lambda task: np.einsum(task.settings["spec"], *task.arrays),
    "softmax": _softmax,
    "softmax_grad": _softmax_grad,
    "reduce_sum": lambda task: task.arrays[0].sum(axis=task.settings["axis"]),
    "reduce_max": _max,
    "reduce_mean": _mean,
    "compare": _compare,
    "select": lambda task: np.where(task.arrays[2] != 0, task.arrays[0], task.arrays[1]),
    "repeat": _repeat,
    "reshape": lambda task: task.arrays[0].reshape(task.shape),
    "transpose": lambda task: task.arrays[0].transpose(task.settings["order"]),
    "concat": lambda task: np.concatenate(task.arrays, axis=task.settings["axis"]),
    "slice": _slice,
    "pad": _pad,
    "top_k": _top_k,
    "largest": _largest,
    "route": _route,
    "gather": _gather,
    "scatter": _scatter,
    "moments": _moments,
    "update": _update,
    "store": lambda task: task.arrays[0].copy(),
    "opaque": lambda task: task.settings["call"](task.arrays),
}
"""All other kinds."""

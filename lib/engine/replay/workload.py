"""Defines the training step that a schedule performs on real tensors, and the same step on one device.

Layer l is relu(a @ W_l), the loss is half the squared distance to a target, the update is SGD with momentum. With a
hidden width h and a length n, a weight is (h, h) and an activation (n, h) per batch: as many numbers as the game counts
elements, 4 bytes each.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from lib.costs import HIDDEN, LENGTH
from lib.engine.collectives import Array
from lib.setting import Size

SMALL_HIDDEN, SMALL_LENGTH = 16, 8
"""Shapes for tests: the game's, 32 times smaller in each dimension; with 16 ranks, each still holds a row."""


class Shape(NamedTuple):
    hidden: int
    length: int


class Workload:
    """Weights, momenta, inputs and targets of one training step.

    The small one uses whole numbers modulo 2**32, where sums are exact in any order; the full one uses float32.
    """

    def __init__(self, size: Size, small: bool) -> None:
        self.size = size
        self.shape = Shape(SMALL_HIDDEN, SMALL_LENGTH) if small else Shape(HIDDEN, LENGTH)
        self.exact = small
        numbers: tuple[Any, Any] = (3, 5) if small else (np.float32(0.01), np.float32(0.9))
        self.rate, self.decay = numbers
        # Everything is drawn now and not when a device asks, because then it would count as that device's memory.
        layers, batches, (hidden, length) = range(size.layers), range(size.batches), self.shape
        self._weights = [self._drawn(0, layer, hidden, (2 / hidden) ** 0.5) for layer in layers]
        self._states = [self._drawn(1, layer, hidden, 0.01) for layer in layers]
        self._inputs = [self._drawn(2, batch, length, 1.0) for batch in batches]
        self._targets = [self._drawn(3, batch, length, 1.0) for batch in batches]

    @property
    def dtype(self) -> Any:
        return np.int32 if self.exact else np.float32

    def weight(self, layer: int) -> Array:
        return self._weights[layer]

    def state(self, layer: int) -> Array:
        return self._states[layer]

    def input(self, batch: int) -> Array:
        return self._inputs[batch]

    def target(self, batch: int) -> Array:
        return self._targets[batch]

    def _drawn(self, what: int, number: int, rows: int, scale: float) -> Array:
        draw = np.random.default_rng([what, number])
        shape = (rows, self.shape.hidden)
        drawn = draw.integers(-2, 3, shape) if self.exact else draw.standard_normal(shape) * scale
        return drawn.astype(self.dtype)


# --- The mathematics, the same for one device and for many --------------------------------------------------


def forward(inp: Array, weight: Array) -> Array:
    """(..., n, h) and (h, h) to (..., n, h)."""
    return np.asanyarray(np.maximum(inp @ weight, inp.dtype.type(0)))


def loss_grad(out: Array, target: Array) -> Array:
    return out - target


def backward(inp: Array, grad: Array, weight: Array) -> tuple[Array, Array]:
    """The gradients of the weight, summed over all batches, and of the input."""
    h = inp.shape[-1]
    grad = grad * (inp @ weight > 0)
    return inp.reshape(-1, h).T @ grad.reshape(-1, h), grad @ weight.T


def update(workload: Workload, grad: Array, weight: Array, state: Array) -> tuple[Array, Array]:
    state = workload.decay * state + grad
    return weight - workload.rate * state, state


def one_device(workload: Workload) -> list[Array]:
    """The updated weights of every layer, from one plain step on all batches, one after the other."""
    size = workload.size
    weights = [workload.weight(layer) for layer in range(size.layers)]
    grads = [np.zeros_like(weight) for weight in weights]
    for batch in range(size.batches):
        inputs = [workload.input(batch)]
        for weight in weights:
            inputs.append(forward(inputs[-1], weight))
        grad = loss_grad(inputs.pop(), workload.target(batch))
        for layer in reversed(range(size.layers)):
            weight_grad, grad = backward(inputs[layer], grad, weights[layer])
            grads[layer] += weight_grad
    return [update(workload, grads[i], weights[i], workload.state(i))[0] for i in range(size.layers)]


def closeness(workload: Workload, weight: Array, right: Array) -> float:
    """The error of a weight: its largest difference from the right one, relative to the largest right entry."""
    if workload.exact:
        return 0.0 if np.array_equal(weight, right) else float("inf")
    scale = float(np.abs(right).max())
    return float(np.abs(weight - right).max()) / scale if np.isfinite(weight).all() else float("inf")


TOLERANCE = 1e-4
"""Relative to the largest weight: float32 sums differ slightly if they are computed in another order."""

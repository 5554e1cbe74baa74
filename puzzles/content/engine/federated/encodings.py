"""Reference encodings of a vector in float64: levels of a quantizer, the Walsh-Hadamard rotation, and test vectors.

They are written differently from the solutions (Kronecker products instead of butterflies), so the two are unlikely to
share a mistake.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puzzles.catalog.engine.two_layer_mlp import integers


class QuantizationScale(NamedTuple):
    """A vector on the scale of a quantizer with 2^bits levels, from its minimum to its maximum.

    `below` is the level below each number, `fraction` its distance from that level in steps, `step` the step size.
    """

    least: float
    step: float
    below: Any
    fraction: Any

    def values(self, up: Any) -> Any:
        """The quantized numbers: each at the level below it, or at the level above where `up` is 1."""
        return self.least + self.step * (self.below + up)

    @property
    def variance(self) -> Any:
        """Variance of every number h under stochastic rounding to a neighbor h' or h'': (h'' - h)(h - h')."""
        return self.step**2 * self.fraction * (1 - self.fraction)


def quantization_scale(h: Any, bits: int) -> QuantizationScale:
    h = np.asarray(h, np.float64)
    top, extent = 2**bits - 1, h.max() - h.min()
    exact = (h - h.min()) * top / (extent or 1)
    below = np.floor(exact)
    return QuantizationScale(h.min(), extent / top, below, exact - below)


def walsh_hadamard(v: Any) -> Any:
    """H v / sqrt(d): for d = s^2, H is the Kronecker product of two matrices with s rows."""
    side = int(np.sqrt(v.size))
    h = np.ones((1, 1))
    while len(h) < side:
        h = np.block([[h, h], [h, -h]])
    return (h @ v.reshape(side, side) @ h).ravel() / side


def random_signs(rng: np.random.Generator, size: int | tuple[int, ...]) -> Any:
    """Random signs, -1 or 1."""
    return 2 * rng.integers(0, 2, size) - 1


def spiky_vector(seed: int, size: int, spike: int = 32) -> Any:
    """Four spikes, and -1, 0 or 1 elsewhere."""
    v = integers(seed, size, most=1)
    v[np.random.default_rng(seed).choice(size, 4, replace=False)] = spike, -spike, spike, -spike
    return v


def padded_vector(size: int, *signs: int) -> Any:
    """The given numbers, then zeros."""
    v = np.zeros(size, np.float32)
    v[: len(signs)] = signs
    return v

"""What codes make of a vector, on one device and in double precision: written another way than players will."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from puzzles.catalog.engine.two_layers import drawn


class Levels(NamedTuple):
    """A vector on a scale from 0 (its least number) to the last of 2^bits levels (its largest): the level below
    each number, how far above it the number stands, and the height of a step."""

    least: float
    step: float
    below: Any
    fraction: Any

    def values(self, up: Any) -> Any:
        """The numbers, once each is the level below, or where `up` says so the one above."""
        return self.least + self.step * (self.below + up)

    @property
    def variance(self) -> Any:
        """(h'' - h)(h - h') of every number: what the coin that takes it to a neighbour h' or h'' adds."""
        return self.step**2 * self.fraction * (1 - self.fraction)


def levels(h: Any, bits: int) -> Levels:
    h = np.asarray(h, np.float64)
    top, extent = 2**bits - 1, h.max() - h.min()
    exact = (h - h.min()) * top / (extent or 1)
    below = np.floor(exact)
    return Levels(h.min(), extent / top, below, exact - below)


def walsh_hadamard(v: Any) -> Any:
    """H v / sqrt(d): for d = s^2, H is the Kronecker product of two matrices of s rows."""
    side = int(np.sqrt(v.size))
    h = np.ones((1, 1))
    while len(h) < side:
        h = np.block([[h, h], [h, -h]])
    return (h @ v.reshape(side, side) @ h).ravel() / side


def coins(rng: np.random.Generator, size: int | tuple[int, ...]) -> Any:
    """Random signs."""
    return 2 * rng.integers(0, 2, size) - 1


def spiky(seed: int, size: int, spike: int = 32) -> Any:
    """Four spikes, and -1, 0 or 1 elsewhere."""
    v = drawn(seed, size, most=1)
    v[np.random.default_rng(seed).choice(size, 4, replace=False)] = spike, -spike, spike, -spike
    return v


def unit(size: int, *signs: int) -> Any:
    """The given numbers, and zeros."""
    v = np.zeros(size, np.float32)
    v[: len(signs)] = signs
    return v

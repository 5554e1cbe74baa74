"""Rotate: random signs and a Walsh-Hadamard transform spread a spike over all numbers before each becomes a bit."""

import numpy as np

from lib.engine import ShardedEngine


def hadamard(v):
    """H v / sqrt(d), in log2(d) rounds of sums and differences; applied twice it gives v again."""
    d, half = v.size, 1
    while half < d:
        pairs = v.reshape(-1, 2, half)
        v = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1)
        half *= 2
    return v.ravel() / np.float32(np.sqrt(d))


class Rotate(ShardedEngine):
    def __init__(self, size):
        self.size = size

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        if self.device_id == 0:
            return np.stack([self.rebuild(client) for client in range(1, self.num_devices)])
        rng = np.random.default_rng(x["seed"])
        rotated = hadamard(self.signs(rng) * x["update"])
        low, high = rotated.min(), rotated.max()
        high_ones = rng.random(self.size) < (rotated - low) / ((high - low) or 1)
        self.send(0, np.uint32(x["seed"]))
        self.send(0, np.array([low, high], dtype=np.float32))
        self.send(0, np.packbits(high_ones))
        return None

    def rebuild(self, client):
        signs = self.signs(np.random.default_rng(int(self.receive(client))))
        low, high = self.receive(client)
        high_ones = np.unpackbits(self.receive(client), count=self.size)
        return signs * hadamard(np.where(high_ones, high, low))

    def signs(self, rng):
        return (2 * rng.integers(0, 2, self.size) - 1).astype(np.float32)

    def backward(self, grads):
        """Not called."""

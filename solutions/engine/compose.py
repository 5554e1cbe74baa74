"""Compose: rotate an update and send a random part of it in a few bits each; the server undoes all three."""

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


class Compose(ShardedEngine):
    def __init__(self, size, share, bits):
        self.size, self.share, self.bits = size, share, bits
        self.kept = size // share
        self.top = 2**bits - 1

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        if self.device_id == 0:
            return np.stack([self.rebuild(client) for client in range(1, self.num_devices)])
        rng = np.random.default_rng(x["seed"])
        signs, places = self.drawn(rng)
        values = hadamard(signs * x["update"])[places]
        low, high = values.min(), values.max()
        exact = (values - low) / ((high - low) or 1) * self.top
        below = np.floor(exact)
        levels = (below + (rng.random(self.kept) < exact - below)).astype(np.uint8)
        self.send(0, np.uint32(x["seed"]))
        self.send(0, np.array([low, high], dtype=np.float32))
        self.send(0, np.packbits(levels[:, None] >> np.arange(self.bits) & 1))
        return None

    def rebuild(self, client):
        signs, places = self.drawn(np.random.default_rng(int(self.receive(client))))
        low, high = self.receive(client)
        digits = np.unpackbits(self.receive(client), count=self.kept * self.bits).reshape(-1, self.bits)
        levels = (digits << np.arange(self.bits)).sum(axis=1)
        rotated = np.zeros(self.size, dtype=np.float32)
        rotated[places] = self.share * (low + (high - low) * (levels / np.float32(self.top)).astype(np.float32))
        return signs * hadamard(rotated)

    def drawn(self, rng):
        """First the signs, then the places: what the server has to draw again."""
        signs = (2 * rng.integers(0, 2, self.size) - 1).astype(np.float32)
        return signs, rng.choice(self.size, self.kept, replace=False)

    def backward(self, grads):
        """Not called."""

"""Ring attention: keys and values go around the ring, and an online softmax corrects the output as they arrive.

With a causal mask, an early and a late chunk on each device give all devices the same number of blocks.
"""

import numpy as np

from lib.engine import ShardedEngine


class RingAttention(ShardedEngine):
    def __init__(self, causal):
        self.causal = causal

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        n, me = self.num_devices, self.device_id
        kv, mine = x.pop("kv"), self.places(me)
        chunks = [Queries(q, place) for q, place in zip(np.split(x["q"], len(mine)), mine)]
        for hop in range(n):
            if hop < n - 1:
                self.send((me + 1) % n, kv)
            for place, k, v in zip(self.places((me - hop) % n), *(np.split(part, len(mine)) for part in kv)):
                for chunk in chunks:
                    if not self.causal or place < chunk.place:
                        chunk.see(k, v)
                    elif place == chunk.place:
                        chunk.see(k, v, np.tri(len(k), dtype=bool))
            if hop < n - 1:
                kv = self.receive((me - 1) % n)
        return np.concatenate([chunk.mixed / chunk.total for chunk in chunks])

    def backward(self, grads):
        """Not called."""

    def places(self, device):
        """Positions of a device's chunks in the sequence."""
        return (device, 2 * self.num_devices - 1 - device) if self.causal else (device,)


class Queries:
    """A chunk of queries, and its softmax and output over the keys and values seen so far."""

    def __init__(self, q, place):
        self.q, self.place = q, place
        self.highest = np.full((len(q), 1), -np.inf, dtype=np.float32)
        self.total, self.mixed = np.zeros_like(self.highest), np.zeros_like(q)

    def see(self, k, v, mask=True):
        scores = np.where(mask, self.q @ k.T * self.q.shape[1] ** -0.5, -np.inf)
        before, self.highest = self.highest, np.maximum(self.highest, scores.max(axis=1, keepdims=True))
        powers, shrunk = np.exp(scores - self.highest), np.exp(before - self.highest)
        self.total = self.total * shrunk + powers.sum(axis=1, keepdims=True)
        self.mixed = self.mixed * shrunk + powers @ v

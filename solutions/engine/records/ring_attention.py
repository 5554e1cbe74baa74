"""Ring attention one query at a time, so that only its own scores and corrections exist.

With a causal mask, a query meets the keys that it sees, up to itself.
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
        q, kv = x["q"], x.pop("kv")
        highest = np.full(len(q), -np.inf, dtype=np.float32)
        total, mixed = np.zeros_like(highest), np.zeros_like(q)
        for hop in range(n):
            if hop < n - 1:
                self.send((me + 1) % n, kv)
            for i in range(len(q)):
                for tokens in self.seen(i, len(q), (me - hop) % n):
                    self.correct(i, q, kv[:, tokens], highest, total, mixed)
            if hop < n - 1:
                del kv
                kv = self.receive((me - 1) % n)
        mixed /= total[:, None]
        return mixed

    def seen(self, i, tokens, source):
        """The ranges of a device's tokens that query i sees."""
        if not self.causal:
            return [slice(0, tokens)]
        chunk = tokens // 2
        own = self.places(self.device_id)[i // chunk]
        counts = [chunk if place < own else i % chunk + 1 if place == own else 0 for place in self.places(source)]
        return [slice(half * chunk, half * chunk + count) for half, count in enumerate(counts) if count]

    def places(self, device):
        """Positions of a device's two chunks in the sequence."""
        return device, 2 * self.num_devices - 1 - device

    def correct(self, i, q, kv, highest, total, mixed):
        """Adds a block of keys and values to the result of query i."""
        scores = kv[0] @ q[i]
        scores *= q.shape[1] ** -0.5
        before, highest[i] = highest[i], np.maximum(highest[i], scores.max())
        scores -= highest[i]
        np.exp(scores, out=scores)
        shrunk = np.exp(before - highest[i])
        total[i] = total[i] * shrunk + scores.sum()
        mixed[i] *= shrunk
        mixed[i] += scores @ kv[1]

    def backward(self, grads):
        """Not called."""

"""Ring all-reduce: a reduce-scatter around the ring, then an all-gather around the ring."""

import numpy as np

from lib.engine import ShardedEngine


class RingAllReduce(ShardedEngine):
    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        n, me = self.num_devices, self.device_id
        parts = np.split(x, n)  # views: writing to a part writes to x
        right, left = (me + 1) % n, (me - 1) % n
        # Reduce-scatter: round r sends the part received in round r - 1; at the end part me + 1 is complete.
        for r in range(n - 1):
            self.send(right, parts[(me - r) % n])
            parts[(me - r - 1) % n] += self.receive(left)
        # All-gather: the complete parts go around once more.
        for r in range(n - 1):
            self.send(right, parts[(me - r + 1) % n])
            parts[(me - r) % n][...] = self.receive(left)
        return x

    def backward(self, grads):
        """Not called."""

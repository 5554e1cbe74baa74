"""Subsample: a fixed fraction of the numbers is sent, scaled up by its inverse, so that the estimate is unbiased."""

import numpy as np

from lib.engine import ShardedEngine


class Subsample(ShardedEngine):
    def __init__(self, size, share):
        self.size, self.share = size, share

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, x):
        if self.device_id == 0:
            return np.stack([self.rebuild(client) for client in range(1, self.num_devices)])
        self.send(0, np.uint32(x["seed"]))
        self.send(0, x["update"][self.drawn(x["seed"])])
        return None

    def rebuild(self, client):
        update = np.zeros(self.size, dtype=np.float32)
        places = self.drawn(int(self.receive(client)))
        update[places] = self.share * self.receive(client)
        return update

    def drawn(self, seed):
        return np.random.default_rng(seed).choice(self.size, self.size // self.share, replace=False)

    def backward(self, grads):
        """Not called."""

"""Random mask: only the weights that a seed picks are trained; the changes and the seed are sent."""

import numpy as np

from lib.engine import ShardedEngine


class RandomMask(ShardedEngine):
    def __init__(self, dim, kept, rate, steps):
        self.w = np.zeros((dim, dim), dtype=np.float32)
        self.kept, self.rate, self.steps = kept, rate, steps

    def load_checkpoint(self, params):
        self.w[...] = params["weights"]

    def forward(self, examples):
        if self.device_id == 0:
            return np.stack([self.rebuild(client) for client in range(1, self.num_devices)])
        x, y, seed = examples["x"], examples["y"], examples["seed"]
        places = self.drawn(seed)
        changes = np.zeros(self.kept, dtype=np.float32)
        for _ in range(self.steps):
            grad = x.T @ (x @ (self.w + self.placed(changes, places)) - y)
            changes -= self.rate * grad.ravel()[places]
        self.send(0, np.uint32(seed))
        self.send(0, changes)
        return None

    def rebuild(self, client):
        seed = int(self.receive(client))
        return self.placed(self.receive(client), self.drawn(seed))

    def drawn(self, seed):
        return np.random.default_rng(seed).choice(self.w.size, self.kept, replace=False)

    def placed(self, changes, places):
        update = np.zeros_like(self.w)
        update.ravel()[places] = changes
        return update

    def backward(self, grads):
        """Not called."""

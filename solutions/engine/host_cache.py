"""Host cache: the first shards that fit stay on the host, which is optimal for layers used in a cycle."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class HostCache(ShardedEngine):
    def __init__(self, layers, model_dim, host_bytes):
        self.names = [f"layer_{layer}/weights" for layer in range(layers)]
        self.fits = host_bytes // (model_dim * model_dim * 4 // self.num_devices)

    def load_checkpoint(self, params):
        for name in self.names:
            self.disk.put(name, np.split(params[name], self.num_devices)[self.device_id])

    def forward(self, x):
        for name in self.names:
            x = relu(x @ self.all_gather(self.shard(name)))
        return x

    def shard(self, name):
        if name in self.host:
            return self.host.fetch(name)
        shard = self.disk.fetch(name)
        if len(self.host) < self.fits:
            self.host.put(name, shard)
        return shard

    def backward(self, grads):
        """Not called."""

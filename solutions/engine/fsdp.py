"""FSDP: weights and gradients live in shards; a whole weight or gradient exists only while it is used."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class FSDP(ShardedEngine):
    def __init__(self, model_dim, hidden_dim):
        n = self.num_devices
        self.w0 = np.zeros((model_dim // n, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim // n, model_dim), dtype=np.float32)
        self.tape = []

    def load_checkpoint(self, params):
        self.w0[...] = np.split(params["layer_0/weights"], self.num_devices)[self.device_id]
        self.w1[...] = np.split(params["layer_1/weights"], self.num_devices)[self.device_id]

    def forward(self, x):
        # A gathered weight is never assigned to a name, so it is freed right after use.
        z = x @ self.all_gather(self.w0)
        self.tape.append((x, z))
        return relu(z) @ self.all_gather(self.w1)

    def backward(self, grads):
        x, z = self.tape.pop()
        w1_grad = self.reduce_scatter(relu(z).T @ grads)
        dz = (grads @ self.all_gather(self.w1).T) * (z > 0)
        del z, grads
        dx = dz @ self.all_gather(self.w0).T
        w0_grad = self.reduce_scatter(x.T @ dz)
        return {"layer_0/weights": w0_grad, "layer_1/weights": w1_grad, "x": dx}

"""Layer split: activations go to the next device, and gradients come back the same way."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class LayerSplit(ShardedEngine):
    def __init__(self, model_dim):
        self.w = np.zeros((model_dim, model_dim), dtype=np.float32)
        self.first = self.device_id == 0
        self.last = self.device_id == self.num_devices - 1
        self.tape = []

    def load_checkpoint(self, params):
        self.w[...] = params[f"layer_{self.device_id}/weights"]

    def forward(self, x):
        if not self.first:
            x = self.receive(self.device_id - 1)
        self.tape.append(x)
        y = relu(x) @ self.w
        if self.last:
            return y
        self.send(self.device_id + 1, y)
        return None

    def backward(self, grads):
        if not self.last:
            grads = self.receive(self.device_id + 1)
        x = self.tape.pop()
        w_grad = relu(x).T @ grads
        dx = (grads @ self.w.T) * (x > 0)
        result = {f"layer_{self.device_id}/weights": w_grad}
        if self.first:
            return {**result, "x": dx}
        self.send(self.device_id - 1, dx)
        return result

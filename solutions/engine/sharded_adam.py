"""Adam in mixed precision: float16 weights on every device, and each device's rows of the float32 state."""

import numpy as np

from lib.engine import ShardedEngine

BETA1, BETA2 = 0.9, 0.999


def relu(x):
    return np.maximum(x, 0)


class ShardedAdam(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, rate, epsilon, scale):
        self.rate, self.epsilon, self.scale = rate, epsilon, scale
        self.taken = 0
        self.weights, self.master, self.moments, self.shards = {}, {}, {}, {}
        self.tape = []

    def load_checkpoint(self, params):
        for name, weight in params.items():
            self.weights[name] = weight.astype(np.float16)
            self.master[name] = np.split(weight, self.num_devices)[self.device_id].copy()
            self.moments[name] = np.zeros_like(self.master[name]), np.zeros_like(self.master[name])

    def forward(self, x):
        z = x @ self.weights["layer_0/weights"]
        self.tape.append((x, z))
        return relu(z) @ self.weights["layer_1/weights"]

    def backward(self, grads):
        x, z = self.tape.pop()
        grads = (grads * np.float32(self.scale)).astype(np.float16)
        with np.errstate(over="ignore", invalid="ignore"):  # an overflow is expected, and shows in the shards
            self.shards["layer_1/weights"] = self.reduce_scatter(relu(z).T @ grads)
            dz = (grads @ self.weights["layer_1/weights"].T) * (z > 0)
            self.shards["layer_0/weights"] = self.reduce_scatter(x.T @ dz)

    def step(self, _):
        finite = all(np.isfinite(shard).all() for shard in self.shards.values())
        # One device's overflow concerns all: either every device makes the step, or none does.
        if self.all_reduce(np.float32(finite), "min"):
            self.taken += 1
            for name, weight in self.weights.items():
                self.update(name, self.shards.pop(name))
                weight[...] = self.all_gather(self.master[name].astype(np.float16))
        else:
            self.scale /= 2
            self.shards.clear()
        return {"weights": self.weights, "master": self.master, "scale": self.scale}

    def update(self, name, shard):
        grad = shard.astype(np.float32)
        grad /= np.float32(self.scale)
        mean, square = self.moments[name]
        mean += (1 - BETA1) * (grad - mean)
        square += (1 - BETA2) * (grad * grad - square)
        root = np.sqrt(square / (1 - BETA2**self.taken)) + self.epsilon
        self.master[name] -= self.rate / (1 - BETA1**self.taken) * mean / root

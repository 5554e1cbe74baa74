"""ZeRO-2: each gradient is reduce-scattered as soon as it exists, so only shards are kept until the step."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class ZeRO2(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, momentum):
        self.momentum = momentum
        self.weights = {
            "layer_0/weights": np.zeros((model_dim, hidden_dim), dtype=np.float32),
            "layer_1/weights": np.zeros((hidden_dim, model_dim), dtype=np.float32),
        }
        n = self.num_devices
        self.states = {name: np.zeros((len(w) // n, w.shape[1]), w.dtype) for name, w in self.weights.items()}
        self.shards = {}
        self.tape = []

    def load_checkpoint(self, params):
        for name, weight in self.weights.items():
            weight[...] = params[name]

    def forward(self, x):
        z = x @ self.weights["layer_0/weights"]
        self.tape.append((x, z))
        return relu(z) @ self.weights["layer_1/weights"]

    def backward(self, grads):
        x, z = self.tape.pop()
        # A full gradient is never assigned to a name: it is freed before the next one is computed.
        self.shards["layer_1/weights"] = self.reduce_scatter(relu(z).T @ grads)
        dz = (grads @ self.weights["layer_1/weights"].T) * (z > 0)
        self.shards["layer_0/weights"] = self.reduce_scatter(x.T @ dz)
        return self.shards

    def step(self, rate):
        for name, weight in self.weights.items():
            state = self.states[name]
            state[...] = self.momentum * state + self.shards.pop(name)
            mine = np.split(weight, self.num_devices)[self.device_id]
            weight[...] = self.all_gather(mine - rate * state)
        return self.weights

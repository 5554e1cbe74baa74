"""ZeRO-1: gradients are reduce-scattered to match the optimizer-state shards; updated weights are all-gathered."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class ZeRO1(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, rate, momentum):
        self.rate, self.momentum = rate, momentum
        self.weights = {
            "layer_0/weights": np.zeros((model_dim, hidden_dim), dtype=np.float32),
            "layer_1/weights": np.zeros((hidden_dim, model_dim), dtype=np.float32),
        }
        n = self.num_devices
        self.states = {name: np.zeros((len(w) // n, w.shape[1]), w.dtype) for name, w in self.weights.items()}
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
        dz = (grads @ self.weights["layer_1/weights"].T) * (z > 0)
        self.step("layer_1/weights", relu(z).T @ grads)
        self.step("layer_0/weights", x.T @ dz)
        return self.weights

    def step(self, name, grad):
        shard = self.reduce_scatter(grad)
        state, weight = self.states[name], self.weights[name]
        state[...] = self.momentum * state + shard
        rows = len(state)
        mine = weight[self.device_id * rows : (self.device_id + 1) * rows]
        weight[...] = self.all_gather(mine - self.rate * state)

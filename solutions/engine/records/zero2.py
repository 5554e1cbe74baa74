"""ZeRO-2 a row of hidden units at a time: no full gradient ever exists."""

import numpy as np

from lib.engine import ShardedEngine

W0, W1 = "layer_0/weights", "layer_1/weights"


class ZeRO2(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, momentum):
        self.momentum = momentum
        self.weights = {
            W0: np.zeros((model_dim, hidden_dim), dtype=np.float32),
            W1: np.zeros((hidden_dim, model_dim), dtype=np.float32),
        }
        n = self.num_devices
        self.states = {name: np.zeros((len(w) // n, w.shape[1]), w.dtype) for name, w in self.weights.items()}
        self.shards = {}
        self.tape = []

    def load_checkpoint(self, params):
        for name, weight in self.weights.items():
            weight[...] = params[name]

    def forward(self, x):
        h = np.maximum(x @ self.weights[W0], 0)
        self.tape.append((x, h))
        return h @ self.weights[W1]

    def backward(self, grads):
        x, h = self.tape.pop()
        self.shards = {name: np.zeros_like(state) for name, state in self.states.items()}
        for row in range(len(self.states[W1])):
            units = slice(row, None, len(self.states[W1]))
            self.shards[W1][row] = self.reduce_scatter(h[:, units].T @ grads)[0]
            h[:, units] = (grads @ self.weights[W1][units].T) * (h[:, units] > 0)
            self.shards[W0][:, units] = self.reduce_scatter(x.T @ h[:, units])
        return self.shards

    def step(self, rate):
        for name, weight in self.weights.items():
            state, shard = self.states[name], self.shards.pop(name)
            for row in range(len(state)):
                state[row] = self.momentum * state[row] + shard[row]
                mine = weight[self.device_id * len(state) + row]
                weight[row :: len(state)] = self.all_gather((mine - rate * state[row])[None])
        return self.weights

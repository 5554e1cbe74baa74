"""ZeRO-2 in which activations end where they are last read, and states and weights are updated in place."""

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
        h = x @ self.weights[W0]
        np.maximum(h, 0, out=h)
        self.tape.append((x, h))
        return h @ self.weights[W1]

    def backward(self, grads):
        x, h = self.tape.pop()
        self.shards[W1] = self.reduce_scatter(h.T @ grads)
        dz = grads @ self.weights[W1].T
        del grads
        dz *= h > 0
        del h
        w0_grad = x.T @ dz
        del x, dz
        self.shards[W0] = self.reduce_scatter(w0_grad)
        return self.shards

    def step(self, rate):
        for name, weight in self.weights.items():
            state, shard = self.states[name], self.shards.pop(name)
            state *= self.momentum
            state += shard
            np.multiply(state, -rate, out=shard)
            shard += np.split(weight, self.num_devices)[self.device_id]
            weight[...] = self.all_gather(shard)
        return self.weights

"""FSDP of any size: a layer is one flat row, padded with zeros so that it splits into equal shards."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class UnevenFSDP(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, rate):
        self.rate = rate
        self.shapes = {"layer_0": (model_dim, hidden_dim), "layer_1": (hidden_dim, model_dim)}
        self.shards = {}
        self.tape = []

    def load_checkpoint(self, params):
        for layer in self.shapes:
            flat = self.flat(params[f"{layer}/weights"], params[f"{layer}/bias"])
            self.shards[layer] = np.split(flat, self.num_devices)[self.device_id].copy()

    def flat(self, weights, bias):
        """A layer as one row: its weights, its bias, and zeros to make the row evenly divisible."""
        padding = -(weights.size + bias.size) % self.num_devices
        return np.concatenate([weights.ravel(), bias, np.zeros(padding, dtype=np.float32)])

    def whole(self, layer):
        """Weights and bias of a layer, gathered from all shards; the rest of the row is padding."""
        rows, columns = self.shapes[layer]
        flat = self.all_gather(self.shards[layer])
        weights, bias, _ = np.split(flat, [rows * columns, rows * columns + columns])
        return weights.reshape(rows, columns), bias

    def through(self, layer, x):
        # The gathered weights are freed when this returns.
        weights, bias = self.whole(layer)
        return x @ weights + bias

    def forward(self, x):
        z = self.through("layer_0", x)
        self.tape.append((x, z))
        return self.through("layer_1", relu(z))

    def backward(self, grads):
        x, z = self.tape.pop()
        dz = (grads @ self.whole("layer_1")[0].T) * (z > 0)
        self.step("layer_1", relu(z).T @ grads, grads.sum(0))
        self.step("layer_0", x.T @ dz, dz.sum(0))
        return self.shards

    def step(self, layer, weights_grad, bias_grad):
        self.shards[layer] -= self.rate * self.reduce_scatter(self.flat(weights_grad, bias_grad))

    def save(self, layers):
        saved = {}
        for layer in layers:
            saved[f"{layer}/weights"], saved[f"{layer}/bias"] = self.whole(layer)
        return saved

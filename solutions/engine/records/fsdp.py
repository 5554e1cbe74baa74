"""FSDP a few hidden units at a time: no full weight and no full gradient ever exists."""

import numpy as np

from lib.engine import ShardedEngine


class FSDP(ShardedEngine):
    with_dx = True

    def __init__(self, model_dim, hidden_dim):
        n = self.num_devices
        self.w0 = np.zeros((model_dim // n, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim // n, model_dim), dtype=np.float32)
        self.tape = []

    def load_checkpoint(self, params):
        self.w0[...] = np.split(params["layer_0/weights"], self.num_devices)[self.device_id]
        self.w1[...] = np.split(params["layer_1/weights"], self.num_devices)[self.device_id]

    def columns(self, row):
        """The hidden units whose rows of w1 are row `row` of each device: columns of w0."""
        return slice(row, None, len(self.w1))

    def forward(self, x):
        h = np.zeros((len(x), self.w0.shape[1]), dtype=np.float32)
        out = np.zeros((len(x), self.w1.shape[1]), dtype=np.float32)
        for row in range(len(self.w1)):
            units = self.columns(row)
            h[:, units] = np.maximum(x @ self.all_gather(self.w0[:, units]), 0)
            out += h[:, units] @ self.all_gather(self.w1[row : row + 1])
        self.tape.append((x, h))
        return out

    def backward(self, grads):
        x, h = self.tape.pop()
        result = {"layer_0/weights": np.zeros_like(self.w0), "layer_1/weights": np.zeros_like(self.w1)}
        if self.with_dx:
            result["x"] = np.zeros_like(x)
        for row in range(len(self.w1)):
            units = self.columns(row)
            result["layer_1/weights"][row] = self.reduce_scatter(h[:, units].T @ grads)[0]
            h[:, units] = (grads @ self.all_gather(self.w1[row : row + 1]).T) * (h[:, units] > 0)
            result["layer_0/weights"][:, units] = self.reduce_scatter(x.T @ h[:, units])
            if self.with_dx:
                result["x"] += h[:, units] @ self.all_gather(self.w0[:, units]).T
        return result

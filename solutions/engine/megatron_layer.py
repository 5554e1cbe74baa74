"""A transformer layer with four all-reduces: attention by heads, the MLP by columns and rows, one each per pass."""

import numpy as np

from lib.engine import ShardedEngine

COLUMNS = ("attention/query", "attention/key", "attention/value", "mlp/up")
ROWS = ("attention/output", "mlp/down")


def relu(x):
    return np.maximum(x, 0)


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class MegatronLayer(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, heads):
        self.heads = heads // self.num_devices
        self.scale = (model_dim // heads) ** -0.5
        self.w = {}
        self.tape = []

    def load_checkpoint(self, params):
        for names, axis in ((COLUMNS, 1), (ROWS, 0)):
            for name in names:
                self.w[name] = np.split(params[name], self.num_devices, axis)[self.device_id].copy()

    def forward(self, x):
        y = x + self.all_reduce(self.attention(x))
        return y + self.all_reduce(self.mlp(y))

    def backward(self, grads):
        of_mlp, dy = self.mlp_backward(grads)
        dy = grads + self.all_reduce(dy)
        of_attention, dx = self.attention_backward(dy)
        return {**of_mlp, **of_attention, "x": dy + self.all_reduce(dx)}

    # From here on no communication: outputs and input gradients are this device's part of a sum.

    def mlp(self, y):
        z = y @ self.w["mlp/up"]
        self.tape.append((y, z))
        return relu(z) @ self.w["mlp/down"]

    def mlp_backward(self, grads):
        y, z = self.tape.pop()
        dz = (grads @ self.w["mlp/down"].T) * (z > 0)
        return {"mlp/up": y.T @ dz, "mlp/down": relu(z).T @ grads}, dz @ self.w["mlp/up"].T

    def attention(self, x):
        q, k, v = (self.split(x @ self.w[name]) for name in COLUMNS[:3])
        weights = softmax(q @ k.swapaxes(1, 2) * self.scale)
        mixed = self.join(weights @ v)
        self.tape.append((x, q, k, v, weights, mixed))
        return mixed @ self.w["attention/output"]

    def attention_backward(self, grads):
        x, q, k, v, weights, mixed = self.tape.pop()
        dmixed = self.split(grads @ self.w["attention/output"].T)
        dweights = dmixed @ v.swapaxes(1, 2)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * self.scale
        inner = dscores @ k, dscores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ dmixed
        w_grads, dx = {"attention/output": mixed.T @ grads}, 0
        for name, d in zip(COLUMNS, map(self.join, inner)):
            w_grads[name] = x.T @ d
            dx = dx + d @ self.w[name].T
        return w_grads, dx

    def split(self, rows):
        """(tokens, width) as (heads, tokens, head_dim)."""
        return rows.reshape(len(rows), self.heads, -1).swapaxes(0, 1)

    def join(self, heads):
        return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)

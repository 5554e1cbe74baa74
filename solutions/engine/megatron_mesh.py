"""A transformer layer on a mesh: activations are summed along tp, gradients along dp, and those of norms along both."""

import numpy as np

from lib.engine import ShardedEngine


class MegatronMesh(ShardedEngine):
    COLUMNS = ("attention/query", "attention/key", "attention/value", "mlp/up")
    ROWS = ("attention/output", "mlp/down")
    GAINS = ("norm_0/gain", "norm_1/gain")

    def __init__(self, model_dim, hidden_dim, heads, mesh):
        dp, tp = mesh
        i, self.j = divmod(self.device_id, tp)
        self.tp = [i * tp + other for other in range(tp)]
        self.dp = [other * tp + self.j for other in range(dp)]
        self.heads = heads // tp
        self.scale = (model_dim // heads) ** -0.5
        self.w = {}
        self.tape = []

    def load_checkpoint(self, params):
        for names, axis in ((self.COLUMNS, 1), (self.ROWS, 0)):
            for name in names:
                self.w[name] = np.split(params[name], len(self.tp), axis)[self.j].copy()
        for name in self.GAINS:
            self.w[name] = params[name].copy()

    def forward(self, x):
        h = self.all_gather(self.norm(x, "norm_0/gain"), group=self.tp)
        y = x + self.reduce_scatter(self.attention(h), group=self.tp)
        h = self.all_gather(self.norm(y, "norm_1/gain"), group=self.tp)
        return y + self.reduce_scatter(self.mlp(h), group=self.tp)

    def backward(self, grads):
        of_mlp, dh = self.mlp_backward(self.all_gather(grads, group=self.tp))
        gain_1, dy = self.norm_backward(self.reduce_scatter(dh, group=self.tp))
        dy += grads
        of_attention, dh = self.attention_backward(self.all_gather(dy, group=self.tp))
        gain_0, dx = self.norm_backward(self.reduce_scatter(dh, group=self.tp))
        gains = self.all_reduce(np.stack([gain_0, gain_1]))
        return {**self.summed({**of_mlp, **of_attention}), **dict(zip(self.GAINS, gains)), "x": dx + dy}

    def summed(self, parts):
        """The gradients summed along dp, in one bucket."""
        bucket = self.all_reduce(np.concatenate([part.ravel() for part in parts.values()]), group=self.dp)
        ends = np.cumsum([part.size for part in parts.values()])
        return {n: flat.reshape(parts[n].shape) for n, flat in zip(parts, np.split(bucket, ends[:-1]))}

    # From here on no communication.

    def norm(self, x, name):
        root = np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(1e-6))
        self.tape.append((name, x / root, root))
        return x / root * self.w[name]

    def norm_backward(self, grads):
        """The gradients of the gain and of the input, for this device's tokens."""
        name, normed, root = self.tape.pop()
        d = grads * self.w[name]
        return (grads * normed).sum(axis=0), (d - normed * (d * normed).mean(axis=-1, keepdims=True)) / root

    def mlp(self, h):
        z = h @ self.w["mlp/up"]
        self.tape.append((h, z))
        return np.maximum(z, 0) @ self.w["mlp/down"]

    def mlp_backward(self, grads):
        """The gradients of this device's weights, and its part of a sum: the gradient of the input."""
        h, z = self.tape.pop()
        dz = (grads @ self.w["mlp/down"].T) * (z > 0)
        return {"mlp/up": h.T @ dz, "mlp/down": np.maximum(z, 0).T @ grads}, dz @ self.w["mlp/up"].T

    def attention(self, h):
        q, k, v = (self.split(h @ self.w[name]) for name in self.COLUMNS[:3])
        scores = q @ k.swapaxes(1, 2) * self.scale
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        mixed = self.join(weights @ v)
        self.tape.append((h, q, k, v, weights, mixed))
        return mixed @ self.w["attention/output"]

    def attention_backward(self, grads):
        """The gradients of this device's weights, and its part of a sum: the gradient of the input."""
        h, q, k, v, weights, mixed = self.tape.pop()
        dmixed = self.split(grads @ self.w["attention/output"].T)
        dweights = dmixed @ v.swapaxes(1, 2)
        dscores = weights * (dweights - (dweights * weights).sum(axis=-1, keepdims=True)) * self.scale
        inner = dscores @ k, dscores.swapaxes(1, 2) @ q, weights.swapaxes(1, 2) @ dmixed
        w_grads, dh = {"attention/output": mixed.T @ grads}, 0
        for name, d in zip(self.COLUMNS, map(self.join, inner)):
            w_grads[name] = h.T @ d
            dh = dh + d @ self.w[name].T
        return w_grads, dh

    def split(self, rows):
        """(tokens, width) as (heads, tokens, head_dim)."""
        return rows.reshape(len(rows), self.heads, -1).swapaxes(0, 1)

    def join(self, heads):
        return heads.swapaxes(0, 1).reshape(heads.shape[1], -1)

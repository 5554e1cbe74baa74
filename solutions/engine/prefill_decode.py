"""Prefill and decode on two groups: keys and values go over once, by heads, and the cache grows where it is used."""

import numpy as np

from lib.engine import ShardedEngine

COLUMNS = ("attention/query", "attention/key", "attention/value")


def softmax(scores):
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class PrefillDecode(ShardedEngine):
    def __init__(self, model_dim, heads, prefill, tokens):
        self.prefill, self.decode = range(prefill), range(prefill, self.num_devices)
        self.group = self.prefill if self.device_id in self.prefill else self.decode
        self.dim, self.heads, self.tokens = model_dim, heads // len(self.group), tokens
        self.scale = (model_dim // heads) ** -0.5
        self.w = {}

    def load_checkpoint(self, params):
        for name, weight in params.items():
            parts = np.split(weight, len(self.group), axis=1 if name in COLUMNS else 0)
            self.w[name] = parts[self.group.index(self.device_id)].copy()

    def forward(self, x):
        if self.group is self.prefill:
            return np.concatenate([self.fill(prompt) for prompt in x])
        return np.stack([self.generate() for _ in range(x)])

    def fill(self, prompt):
        y, k, v = self.layer(prompt)
        part = self.device_id * len(self.decode) // len(self.prefill)
        self.send(self.decode[part], np.concatenate([y[-1], k.ravel(), v.ravel()]))
        return y

    def generate(self):
        each = len(self.prefill) // len(self.decode)
        first = self.group.index(self.device_id) * each
        parts = [self.receive(device) for device in self.prefill[first : first + each]]
        shape = 2, self.heads // each, -1, self.dim // (self.heads * len(self.group))
        k, v = np.concatenate([part[self.dim :].reshape(shape) for part in parts], axis=1)
        out = [parts[0][: self.dim]]
        for _ in range(self.tokens - 1):
            y, k, v = self.layer(out[-1][None], k, v)
            out.append(y[0])
        return np.stack(out)

    def layer(self, x, *cache):
        """The output for new tokens, and all keys and values, (heads, tokens, head_dim): those of the cache first."""
        q, *new = (self.split(x @ self.w[name]) for name in COLUMNS)
        k, v = (np.concatenate(pair, axis=1) for pair in zip(cache, new)) if cache else new
        earlier = k.shape[1] - len(x)
        seen = np.tri(len(x), k.shape[1], earlier, dtype=bool)
        mixed = softmax(np.where(seen, q @ k.swapaxes(1, 2) * self.scale, -np.inf)) @ v
        mixed = mixed.swapaxes(0, 1).reshape(len(x), -1)
        return x + self.all_reduce(mixed @ self.w["attention/output"], group=self.group), k, v

    def split(self, rows):
        """(tokens, width) as (heads, tokens, head_dim)."""
        return rows.reshape(len(rows), self.heads, -1).swapaxes(0, 1)

    def backward(self, grads):
        """Not called."""

"""A Switch layer: equal buffers go to the experts and back by all-to-all; tokens that do not fit skip the experts."""

from math import ceil

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


def softmax(z):
    grown = np.exp(z - z.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


class SwitchDispatch(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, factor):
        self.factor = factor
        self.router = np.zeros((model_dim, self.num_devices), dtype=np.float32)
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)

    def load_checkpoint(self, params):
        self.router[...] = params["router/weights"]
        self.w0[...] = params[f"expert_{self.device_id}/w0"]
        self.w1[...] = params[f"expert_{self.device_id}/w1"]

    def forward(self, x):
        experts, tokens = self.num_devices, np.arange(len(x))
        capacity = ceil(len(x) / experts * self.factor)
        p = softmax(x @ self.router)
        chosen = p.argmax(axis=1)
        # A token's place is the number of earlier tokens that have chosen the same expert.
        before = np.eye(experts, dtype=int)[chosen].cumsum(axis=0) - 1
        place = before[tokens, chosen]
        fits = place < capacity
        slots = chosen[fits], place[fits]
        buffer = np.zeros((experts, capacity, x.shape[1]), dtype=x.dtype)
        buffer[slots] = x[fits]
        # Empty slots are zeros; relu(0 @ w0) @ w1 is zero too.
        rows = self.all_to_all(buffer)
        back = self.all_to_all(relu(rows @ self.w0) @ self.w1)
        x[fits] += p[tokens, chosen][fits, None] * back[slots]
        return {"out": x, "dropped": tokens[~fits]}

    def backward(self, grads):
        """Not called."""

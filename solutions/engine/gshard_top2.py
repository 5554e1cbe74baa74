"""GShard's top-2 gate: all first choices get places first, then second choices at random."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


def softmax(z):
    grown = np.exp(z - z.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


class GShardTop2(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, capacity):
        self.capacity = capacity
        self.router = np.zeros((model_dim, self.num_devices), dtype=np.float32)
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)

    def load_checkpoint(self, params):
        self.router[...] = params["router/weights"]
        self.w0[...] = params[f"expert_{self.device_id}/w0"]
        self.w1[...] = params[f"expert_{self.device_id}/w1"]

    def forward(self, given):
        x, rnd = given["x"], given["rnd"]
        experts, tokens = self.num_devices, np.arange(len(x))
        g = softmax(x @ self.router)
        first, second = np.argsort(-g, axis=1, kind="stable")[:, :2].T
        g1, g2 = g[tokens, first], g[tokens, second]
        g1, g2 = g1 / (g1 + g2), g2 / (g1 + g2)

        # Places are cumulative counts: all first choices in token order, then all second choices.
        one_hot = np.eye(experts, dtype=int)
        counted = one_hot[np.concatenate([first, second])].cumsum(axis=0)
        counts = counted[len(x) - 1]
        place1 = counted[tokens, first] - 1
        place2 = counted[len(x) + tokens, second] - 1
        keep1 = place1 < self.capacity
        keep2 = (place2 < self.capacity) & (2 * g2 > rnd)
        aux = (counts / len(x) * g.mean(axis=0)).mean(keepdims=True)

        choices = [(first, place1, g1, keep1), (second, place2, g2, keep2)]
        buffer = np.zeros((experts, self.capacity, x.shape[1]), dtype=x.dtype)
        for expert, place, _, keep in choices:
            buffer[expert[keep], place[keep]] = x[keep]
        rows = self.all_to_all(buffer)
        back = self.all_to_all(relu(rows @ self.w0) @ self.w1)
        for expert, place, gate, keep in choices:
            x[keep] += gate[keep, None] * back[expert[keep], place[keep]]
        return {"out": x, "aux": aux}

    def backward(self, grads):
        """Not called."""

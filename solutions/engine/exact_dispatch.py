"""Exact dispatch: devices gather all counts first, so each can compute where to put its rows."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


def softmax(z):
    grown = np.exp(z - z.max(axis=1, keepdims=True))
    return grown / grown.sum(axis=1, keepdims=True)


class ExactDispatch(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, tokens):
        n = self.num_devices
        self.router = np.zeros((model_dim, n), dtype=np.float32)
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)
        self.inbox = self.symmetric((n * tokens, model_dim))  # the input of my expert, even if every token chooses it
        self.back = self.symmetric((tokens, model_dim))  # the experts' results for my tokens

    def load_checkpoint(self, params):
        self.router[...] = params["router/weights"]
        self.w0[...] = params[f"expert_{self.device_id}/w0"]
        self.w1[...] = params[f"expert_{self.device_id}/w1"]

    def forward(self, x):
        me, n = self.device_id, self.num_devices
        p = softmax(x @ self.router)
        chosen = p.argmax(axis=1)
        order = np.argsort(chosen, kind="stable")  # my tokens, by expert
        mine = np.bincount(chosen, minlength=n).astype(np.int32)
        counts = self.all_gather(mine[None])  # counts[source, expert]
        at = counts.cumsum(axis=0) - counts  # where a source's rows start in an expert's inbox
        home = counts.cumsum(axis=1) - counts  # where an expert's rows start among a source's sorted tokens

        rows = x[order]
        for e in range(n):
            count = counts[me, e]
            self.put(rows[home[me, e] :][:count], self.inbox[at[me, e] :][:count], e)
        self.barrier()
        made = relu(self.inbox[: counts[:, me].sum()] @ self.w0) @ self.w1
        for source in range(n):
            count = counts[source, me]
            self.put(made[at[source, me] :][:count], self.back[home[source, me] :][:count], source)
        self.barrier()
        x[order] += p.max(axis=1)[order, None] * self.back
        return x

    def put(self, rows, place, device):
        if device == self.device_id:
            place[...] = rows
        elif len(rows):
            self.send_async(rows, place, device)

    def backward(self, grads):
        """Not called."""

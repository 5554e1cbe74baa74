"""A parameter server: workers push gradients and fetch weights at their own pace; each server has a part of them."""

import numpy as np

from lib.engine import ShardedEngine


class ParameterServer(ShardedEngine):
    def __init__(self, dim, servers, rate):
        self.servers, self.rate = servers, rate

    def load_checkpoint(self, params):
        w = params["weights"]
        serves = self.device_id < self.servers
        self.w = np.split(w, self.servers)[self.device_id].copy() if serves else w.copy()

    def forward(self, x):
        return self.serve(x["order"]) if self.device_id < self.servers else self.train(x["x"], x["y"], x["steps"])

    def serve(self, order):
        left = {worker: order.count(worker) for worker in order}
        for worker in order:
            self.w -= self.rate * self.receive(worker)
            left[worker] -= 1
            if left[worker]:
                self.send(worker, self.w)
        return self.w

    def train(self, x, y, steps):
        for left in reversed(range(steps)):
            grad = x.T @ (x @ self.w - y) / len(y)
            for server, part in enumerate(np.split(grad, self.servers)):
                self.send(server, part)
            if left:
                self.w = np.concatenate([self.receive(server) for server in range(self.servers)])

    def backward(self, grads):
        """Not called."""

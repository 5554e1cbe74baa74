"""FedSGD: clients send sums of gradients and their numbers of examples; the server makes one step."""

import numpy as np

from lib.engine import ShardedEngine


class FedSGD(ShardedEngine):
    def __init__(self, dim, rate):
        self.w = np.zeros(dim, dtype=np.float32)
        self.rate = rate

    def load_checkpoint(self, params):
        self.w[...] = params["weights"]

    def forward(self, examples):
        clients = range(1, self.num_devices)
        if self.device_id == 0:
            # Adding up the sums and the numbers of examples already weights each client correctly.
            total = sum(self.receive(client) for client in clients)
            self.w -= self.rate * total[:-1] / total[-1]
            for client in clients:
                self.send(client, self.w)
        else:
            x, y = examples["x"], examples["y"]
            grad = x.T @ (x @ self.w - y)
            self.send(0, np.append(grad, np.float32(len(y))))
            self.w[...] = self.receive(0)
        return self.w

    def backward(self, grads):
        """Not called."""

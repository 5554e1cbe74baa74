"""2D matmul: the contraction is split along y and the rows along x; each sum runs along the axis that was split."""

import numpy as np

from lib.engine import ShardedEngine


class Matmul2D(ShardedEngine):
    def __init__(self, model_dim, hidden_dim, mesh):
        x_size, y_size = mesh
        i, self.j = divmod(self.device_id, y_size)
        self.along_x = [k * y_size + self.j for k in range(x_size)]
        self.along_y = [i * y_size + k for k in range(y_size)]
        self.w = np.zeros((model_dim // y_size, hidden_dim), dtype=np.float32)
        self.tape = []

    def load_checkpoint(self, params):
        self.w[...] = np.split(params["weights"], len(self.along_y))[self.j]

    def forward(self, x):
        self.tape.append(x)
        return self.reduce_scatter(x @ self.w, axis=1, group=self.along_y)

    def backward(self, grads):
        x = self.tape.pop()
        grads = self.all_gather(grads, axis=1, group=self.along_y)
        return {"weights": self.all_reduce(x.T @ grads, group=self.along_x), "x": grads @ self.w.T}

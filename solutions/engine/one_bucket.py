"""One bucket: all gradients are sent as one flat array, in a single collective."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class OneBucket(ShardedEngine):
    def __init__(self, model_dim, hidden_dim):
        self.w0 = np.zeros((model_dim, hidden_dim), dtype=np.float32)
        self.w1 = np.zeros((hidden_dim, model_dim), dtype=np.float32)
        self.tape = []

    def load_checkpoint(self, params):
        self.w0[...] = params["layer_0/weights"]
        self.w1[...] = params["layer_1/weights"]

    def forward(self, x):
        z = x @ self.w0
        self.tape.append((x, z))
        return relu(z) @ self.w1

    def backward(self, grads):
        x, z = self.tape.pop()
        w1_grad = relu(z).T @ grads
        dz = (grads @ self.w1.T) * (z > 0)
        w0_grad = x.T @ dz
        bucket = self.all_reduce(np.concatenate([w0_grad.ravel(), w1_grad.ravel()]))
        w0_sum, w1_sum = np.split(bucket, [w0_grad.size])
        return {"layer_0/weights": w0_sum.reshape(w0_grad.shape), "layer_1/weights": w1_sum.reshape(w1_grad.shape)}

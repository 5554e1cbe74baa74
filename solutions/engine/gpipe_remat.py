"""GPipe with rematerialization: a stage keeps only its input and recomputes its activations for backward."""

import numpy as np

from lib.engine import ShardedEngine


def relu(x):
    return np.maximum(x, 0)


class GPipeRemat(ShardedEngine):
    def __init__(self, model_dim, layers, microbatches):
        each = layers // self.num_devices
        self.names = [f"layer_{self.device_id * each + i}/weights" for i in range(each)]
        self.weights = [np.zeros((model_dim, model_dim), dtype=np.float32) for _ in self.names]
        self.grads = [np.zeros_like(w) for w in self.weights]
        self.microbatches = microbatches
        self.first = self.device_id == 0
        self.last = self.device_id == self.num_devices - 1
        self.kept = []

    def load_checkpoint(self, params):
        for name, weight in zip(self.names, self.weights):
            weight[...] = params[name]

    def stage(self, x):
        """The input of each layer, and the output of the last."""
        inputs = []
        for weight in self.weights:
            inputs.append(x)
            x = relu(x) @ weight
        return inputs, x

    def forward(self, x):
        parts = np.split(x, self.microbatches) if self.first else []
        outputs = []
        for i in range(self.microbatches):
            x = parts[i] if self.first else self.receive(self.device_id - 1)
            self.kept.append(x)
            y = self.stage(x)[1]  # everything in between is dropped
            if self.last:
                outputs.append(y)
            else:
                self.send(self.device_id + 1, y)
        return np.concatenate(outputs) if self.last else None

    def backward(self, grads):
        parts = np.split(grads, self.microbatches) if self.last else []
        for _ in range(self.microbatches):
            # Recomputed before waiting for the gradient, when the device is idle anyway.
            inputs = self.stage(self.kept.pop())[0]
            self.through(inputs, parts.pop() if self.last else self.receive(self.device_id + 1))
        return dict(zip(self.names, self.grads))

    def through(self, inputs, grads):
        """One microbatch back through the stage. Consumes its inputs, and leaves no name that refers to any of it."""
        for weight, weight_grad in zip(reversed(self.weights), reversed(self.grads)):
            x = inputs.pop()
            weight_grad += relu(x).T @ grads
            grads = (grads @ weight.T) * (x > 0)
        if not self.first:
            self.send(self.device_id - 1, grads)

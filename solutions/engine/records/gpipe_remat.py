"""GPipe with rematerialization: the last microbatch keeps its inputs, because it is the first that goes back; the last
layer has no second forward; and gradients go on before weights have theirs."""

import numpy as np

from solutions.engine.gpipe_remat import GPipeRemat as Reference
from solutions.engine.gpipe_remat import relu


class GPipeRemat(Reference):
    def forward(self, x):
        parts = np.split(x, self.microbatches) if self.first else []
        outputs = []
        for i in range(self.microbatches):
            x = parts[i] if self.first else self.receive(self.device_id - 1)
            self.kept.append(x)
            self.inputs, y = self.stage(x)
            if i < self.microbatches - 1:
                del self.inputs, x
            if self.last:
                outputs.append(y)
            else:
                self.send(self.device_id + 1, y)
            del y
        return np.concatenate(outputs) if self.last else None

    def backward(self, grads):
        parts = np.split(grads, self.microbatches) if self.last else []
        for i in range(self.microbatches):
            inputs = [self.kept.pop()]
            if i == 0:
                inputs = self.__dict__.pop("inputs")
            else:
                for weight in self.weights[:-1]:
                    inputs.append(relu(inputs[-1]) @ weight)
            self.through(inputs, parts.pop() if self.last else self.receive(self.device_id + 1))
        return dict(zip(self.names, self.grads))

    def through(self, inputs, grads):
        each = [grads]  # the gradient of each layer's output, from the last on
        for weight, x in zip(self.weights[:0:-1], inputs[:0:-1]):
            each.append((each[-1] @ weight.T) * (x > 0))
        if not self.first:
            self.send(self.device_id - 1, (each[-1] @ self.weights[0].T) * (inputs[0] > 0))
        for weight_grad, x, grad in zip(self.grads, inputs, reversed(each)):
            weight_grad += relu(x).T @ grad

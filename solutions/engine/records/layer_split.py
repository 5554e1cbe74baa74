"""Layer split in which each device sends the gradient on before it computes that of its own weight."""

from solutions.engine.layer_split import LayerSplit as Reference
from solutions.engine.layer_split import relu


class LayerSplit(Reference):
    def backward(self, grads):
        if not self.last:
            grads = self.receive(self.device_id + 1)
        x = self.tape.pop()
        dx = (grads @ self.w.T) * (x > 0)
        if not self.first:
            self.send(self.device_id - 1, dx)
        result = {f"layer_{self.device_id}/weights": relu(x).T @ grads}
        return {**result, "x": dx} if self.first else result

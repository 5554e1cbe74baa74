"""Memory of ZeRO's stages: the formulas, the choice of a plan, and arrays of exactly those sizes."""

import numpy as np

from lib.engine import ShardedEngine

WEIGHTS, GRADIENTS, STATE = 2, 2, 12  # bytes per parameter


def memory(stage, parameters, degree):
    """Bytes per device: the first `stage` of state, gradients and weights are in `degree` shards."""
    parts = (STATE, GRADIENTS, WEIGHTS)
    return (sum(parts[stage:]) * degree + sum(parts[:stage])) * parameters // degree


class ZeROMemory(ShardedEngine):
    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, case):
        self.held = None  # free the last case's arrays before allocating new ones
        plan = self.cheapest(**case)
        if plan is not None:
            self.held = self.arrays(*plan, case["parameters"] // case["scale"])
        return plan

    def cheapest(self, parameters, devices, budget, scale):
        degrees = [degree for degree in range(1, devices + 1) if devices % degree == 0]
        fits = [
            (stage, degree)
            for stage in range(4)
            for degree in (degrees if stage else [1])
            if memory(stage, parameters, degree) <= budget
        ]
        # Stage 3 sends 50% more, so it comes last; otherwise the lower degree wins, then the lower stage.
        return min(fits, key=lambda plan: (plan[0] == 3, plan[1], plan[0]), default=None)

    def arrays(self, stage, degree, parameters):
        def numbers(dtype, from_stage):
            return np.zeros(parameters // degree if stage >= from_stage else parameters, dtype)

        state = [numbers(np.float32, 1) for _ in ("master weights", "momentum", "variance")]
        return [numbers(np.float16, 3), numbers(np.float16, 2), *state]

    def backward(self, grads):
        """Not called."""

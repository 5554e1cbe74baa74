"""ZeROMemory: choose the ZeRO stage and degree that fit a memory budget."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO

PUZZLE = EnginePuzzle(
    slug="ZeROMemory",
    title="Which stage fits?",
    targets={"collectives": 0, "peak": 384_000},
    arithmetic="""\
For P parameters, with everything replicated: 2P + 2P + 12P = 16P bytes per device. Stage 1 shards the 12 over N
devices: 4P + 12P/N. Stage 2 also shards the gradients: 2P + 14P/N. Stage 3 shards everything: 16P/N.
With P = 7.5e9 and N = 64 that is 120 GB; 30 + 1.40625 = 31.4 GB; 15 + 1.640625 = 16.6 GB; 1.875 = 1.9 GB.

Volume, in numbers sent per parameter (times (N-1)/N): an all-reduce of the gradients sends 2; stages 1 and 2,
a reduce-scatter of gradients and an all-gather of weights, 2; stage 3 gathers the weights once more, 3.

At a scale of 1 to 312,500 the model has 24,000 parameters. Most memory is held for 128 GB, where everything
fits on every device: 16 x 24,000 = 384,000 B. That is the peak, if one case's arrays are freed before the next
ones are created. Every device chooses and allocates by itself, so there is nothing to send.
""",
    statement="""\
Training with Adam in mixed precision takes 16 bytes per parameter: a weight of 2 bytes (float16), a gradient of
2, and 12 of optimizer state: a master copy of the weight, momentum and variance, float32 each. ZeRO shards these
over groups of `degree` devices. Each device keeps 1/degree of what is sharded, and everything else:

Stage 0 shards nothing, and its degree is 1. Stage 1 shards the optimizer state. Stage 2 also shards the
gradients. Stage 3 also shards the weights, which are then gathered when they are needed.

`forward` gets a case, a dictionary: {'parameters': 7_500_000_000, 'devices': 64, 'budget': 80_000_000_000,
'scale': 312_500}. Choose a plan that fits into every device's budget, in bytes. Of the plans that fit, take one
that sends the least: stages 0, 1 and 2 send 2 numbers per parameter in a step, stage 3 sends 3. Break ties by the
smallest degree, then by the lowest stage. A degree must divide the number of devices in the cluster (the one in
the case, not the number of devices that your class runs on). Return (stage, degree), or None if nothing fits.

Then measure it, on each device by itself: allocate the arrays of one such device, for a model `scale` times
smaller, and keep them until the next case. Allocate all five kinds, each with its dtype. After every case the
meter has to read exactly what the formula predicts. Without a plan, keep nothing. To see what it reads:
`run = launch(ZeROMemory, 1)`, `run.forward(case)`, `run.meters[0].live * scale`, with `launch` from `lib.engine`.
""",
    starter='''\
class ZeROMemory(ShardedEngine):
    """Which stage fits?"""

    def load_checkpoint(self, params):
        """There are no parameters."""

    def forward(self, case):
        """case: a dictionary of parameters, devices, budget and scale. Returns (stage, degree) or None, and keeps
        the arrays of one device, parameters / scale of them."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """Not called."""
''',
    hints=(
        "First write the bytes per device as a function of stage, parameters and degree; try it on 7.5e9 and 64.",
        (
            "There are few plans: every stage with every degree that divides the number of devices. Keep those that "
            "fit, and let `min` with a `key` find the best."
        ),
        (
            "The arrays: float16 for weights and gradients, three of float32. Each has parameters // scale numbers, or "
            "1/degree of that if its stage is reached. Free the last case's arrays before you create these."
        ),
        (
            "`min(fits, key=lambda plan: (plan[0] == 3, plan[1], plan[0]), default=None)` for plans (stage, degree); "
            "`self.held = None` first, then `self.held = [np.zeros(count, np.float16), ...]`."
        ),
    ),
    concept="""\
Three quarters of a training run's memory is optimizer state, so sharding it, which costs nothing, gains the
most. Gradients come next, also for free. Weights come last: only their sharding costs extra bytes.
""",
    in_practice="""\
The figures are from the paper (Rajbhandari et al. 2020), which counts K = 12 bytes of state for Adam.
DeepSpeed calls them ZeRO stages 1, 2 and 3. A degree smaller than the number of devices is PyTorch's hybrid
sharding (Zhao et al. 2023), usually within one machine with fast links. Activations, buffers and fragmentation
add to this, so leave room.
""",
    sources=(ZERO, PYTORCH_FSDP),
)

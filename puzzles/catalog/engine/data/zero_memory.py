"""ZeROMemory: choose the ZeRO stage and degree that fit a memory budget."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO

PUZZLE = EnginePuzzle(
    slug="ZeROMemory",
    title="Which stage fits?",
    targets={"peak": 384_000},
    arithmetic="""\
For P parameters, of which a share lies on N devices: everything everywhere is 2P + 2P + 12P = 16P bytes.
Stage 1 shares the 12: 4P + 12P/N. Stage 2 shares the gradients too: 2P + 14P/N. Stage 3 shares all: 16P/N.
With P = 7.5e9 and N = 64 that is 120 GB; 30 + 1.40625 = 31.4 GB; 15 + 1.640625 = 16.6 GB; 1.875 = 1.9 GB.

Volume, in numbers sent for each parameter (times (N-1)/N): an all-reduce of the gradients 2; stages 1 and
2, reduce-scatter of gradients and all-gather of weights, 2; stage 3 gathers the weights once more, 3.

At a scale of 1 to 312,500 the model has 24,000 parameters; most is held for 128 GB, where everything fits
everywhere: 16 x 24,000 = 384,000 B. That is the peak, if a case's arrays are gone before the next ones are
made.
""",
    statement="""\
Training with Adam in mixed precision takes 16 bytes for each parameter: a weight of 2 bytes (float16), a
gradient of 2, and 12 of optimizer state: a master copy of the weight, momentum and variance, float32 each.
ZeRO shares these among groups of `degree` devices; each device keeps one degree-th of what is shared, and
all of the rest:

Stage 0 shares nothing, and its degree is 1. Stage 1 shares the optimizer state. Stage 2 shares the
gradients as well. Stage 3 shares the weights too, which are then gathered when they are needed.

`forward` gets a case, a dictionary: {'parameters': 7_500_000_000, 'devices': 64, 'budget': 80_000_000_000,
'scale': 312_500}. Choose what fits into the budget, in bytes, of every device. Of all that fits take what
sends least: stages 0, 1 and 2 send 2 numbers for each parameter in a step, stage 3 sends 3. If several are
left, the smallest degree; if there are still several, the lowest stage. A degree must divide the cluster's
number of devices (which is the case's, not that of the devices your class runs on). Return (stage, degree),
or None if nothing fits.

Then see it: keep the arrays of one such device, of a model `scale` times smaller, until the next case
comes. All five kinds, each in its type: after every case the meter has to read what the formula says, to
the byte. Without a plan, keep nothing. To look yourself: `run = launch(ZeROMemory, 1)`,
`run.forward(case)`, `run.meters[0].live * scale`, with `launch` from `lib.engine`.
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
        "Write the bytes of a device as a function of stage, parameters and degree first; try it on 7.5e9 and 64.",
        (
            "There are few plans: every stage with every degree that divides the number of devices. Keep those that "
            "fit, and let `min` with a `key` find the best."
        ),
        (
            "The arrays: float16 for weights and gradients, three of float32; each has parameters // scale numbers, or "
            "a degree-th of that if its stage is reached. Let go of the last case's before you make these."
        ),
        (
            "`min(fits, key=lambda plan: (plan[0] == 3, plan[1], plan[0]), default=None)` for plans (stage, degree); "
            "`self.held = None` first, then `self.held = [np.zeros(count, np.float16), ...]`."
        ),
    ),
    concept="""\
Three quarters of the memory of a training run are optimizer state, so sharing it, which costs nothing, is
most of the gain. After that gradients, still for nothing. Weights come last: they are the only thing whose
sharing is paid with bytes.
""",
    in_practice="""\
The figures are those of the paper (Rajbhandari et al. 2020), which counts K = 12 bytes of state for Adam.
DeepSpeed calls them zero stages 1, 2 and 3; a degree smaller than the number of devices is PyTorch's hybrid
sharding (Zhao et al. 2023), usually one machine with its fast links. Activations, buffers and fragmentation
come on top, so leave room.
""",
    sources=(ZERO, PYTORCH_FSDP),
)

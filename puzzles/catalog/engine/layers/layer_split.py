"""LayerSplit: one layer on each device, forward and backward, without microbatches."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import DISTBELIEF, GPIPE, ZERO_BUBBLE

PUZZLE = EnginePuzzle(
    slug="LayerSplit",
    title="One after the other, there and back",
    targets={"sent": 1_024, "messages": 2, "collectives": 0, "flops": 12_288, "weights": 1_024, "clock": 49_152},
    arithmetic="""\
What crosses a boundary is 8 x 16 numbers, 512 B: an activation forward, its gradient back. A device between
two others sends both, 1,024 B in 2 messages; the first and the last send 512 B. A weight is 16 x 16
numbers, 1,024 B.

A product is 2 x 8 x 16 x 16 = 4,096 flops, one forward and two backward: 12,288 on each device. Nobody can
start before the one before has finished, so the last of 4 devices is done forward after 4 x 4,096 = 16,384,
and the first is done backward after 4 x 8,192 more: 49,152, which is all devices' work added up. No two
were ever busy at a time.

A device that sends the gradient on before it makes that of its own weight hides one product of every other
device: 36,864.
""",
    statement="""\
A model of four layers `x = relu(x) @ w`, parameters 'layer_0/weights' to 'layer_3/weights', (16, 16) each,
is too large for one device: device i is layer i, and holds nothing else.

`forward` gets the batch, (8, 16), on the first device, and None on the others. The last one returns the
output, the others return None. `backward` gets the output's gradient on the last device, and None on the
others. Each returns a dictionary with the gradient of its weight under the weight's name; the first one
also the gradient of the batch, under 'x'. Use `send` and `receive`: what a device needs, its neighbour has.

Other numbers of devices are tried as well, and two batches in a row.
""",
    starter='''\
class LayerSplit(ShardedEngine):
    """One after the other, there and back."""

    def __init__(self, model_dim):
        """Make room for your layer."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your layer out of params."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: (8, 16) on the first device, else None. Returns (8, 16) on the last device, else None."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (8, 16) on the last device, else None. Returns the gradient of your weight, and the first 'x'."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Who has what your layer needs forward? And who has it backward?",
        (
            "Only the ends differ: the first does not receive forward and does not send backward, the last does not "
            "send forward and does not receive backward."
        ),
        (
            "Keep the input of your layer for backward. With it, `w_grad = relu(x).T @ grads`, and what goes to device "
            "i - 1 is `(grads @ self.w.T) * (x > 0)`."
        ),
    ),
    concept="""\
Splitting the layers divides the memory by the number of devices, and sends little: activations, not
weights. But a layer needs the one before it, so as long as there is one batch, one device works and the
others wait. With N devices each is busy an N-th of the time. What helps is more than one batch on the way:
that is the next puzzles' matter.
""",
    in_practice="""\
DistBelief (Dean et al. 2012) split a model among machines, and sent what crosses from one part to the next.
Today layers are split like this where a model is loaded onto several devices just to make it fit; for
training, a pipeline of microbatches fills the gaps (Huang et al. 2019). Sending the gradient on before
making that of the weight is where zero-bubble schedules begin (Qi et al. 2023).
""",
    sources=(DISTBELIEF, GPIPE, ZERO_BUBBLE),
)

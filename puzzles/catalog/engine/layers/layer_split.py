"""LayerSplit: one layer per device, forward and backward, without microbatches."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.engine_papers import DISTBELIEF
from puzzles.catalog.papers import GPIPE, ZERO_BUBBLE

PUZZLE = EnginePuzzle(
    slug="LayerSplit",
    title="One layer per device, forward and back",
    targets={"sent": 1_040, "messages": 2, "collectives": 0, "flops": 12_288, "weights": 1_024, "clock": 49_152},
    arithmetic="""\
What crosses a boundary is 8 x 16 numbers, 512 B: an activation forward, its gradient back. A message of a matrix has 8
B more. A device in the middle sends both, 1,040 B in 2 messages; the first and the last send 520 B. A weight is 16 x
16 numbers, 1,024 B.

A product is 2 x 8 x 16 x 16 = 4,096 flops, one forward and two backward: 12,288 on each device. No device can
start before the previous one has finished, so the last of 4 devices finishes forward after 4 x 4,096 = 16,384,
and the first finishes backward after 4 x 8,192 more: 49,152. That is the sum of the work of all devices: no two devices
compute at the same time.

If each device sends the gradient on before it computes its own weight's gradient, it hides one product of every
other device: 36,864.
""",
    statement="""\
A model of four layers `x = relu(x) @ w`, parameters 'layer_0/weights' to 'layer_3/weights', (16, 16) each, is too
large for one device. Device i holds only layer i.

`forward` gets the batch, (8, 16), on the first device, and None on the others. The last device returns the
output, the others return None. `backward` gets the output's gradient on the last device, and None on the
others. Each device returns a dictionary with the gradient of its weight under the weight's name. The first device
also returns the gradient of the batch, under 'x'. Use `send` and `receive` between neighboring devices.

Other numbers of devices are also tried, and two batches in a row.
""",
    starter='''\
class LayerSplit(ShardedEngine):
    """One layer on each device, forward and back."""

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
        "Which device has what your layer needs in forward? And in backward?",
        (
            "Only the ends differ: the first device does not receive in forward or send in backward, and the last does "
            "not send in forward or receive in backward."
        ),
        (
            "Keep the input of your layer for backward. With it, `w_grad = relu(x).T @ grads`, and device i - 1 gets "
            "`(grads @ self.w.T) * (x > 0)`."
        ),
    ),
    concept="""\
Splitting the layers divides the memory by the number of devices, and sends little: activations instead of weights.
But a layer needs the previous one, so with only one batch, one device works and the others wait. With N devices
each is busy 1/N of the time. The next puzzles have several batches in flight, which keeps more devices busy.
""",
    in_practice="""\
DistBelief (Dean et al. 2012) split a model among machines, and sent activations from one part to the next.
Today, layers are split like this to make a model fit onto several devices. For training, a pipeline of
microbatches fills the gaps (Huang et al. 2019). Zero-bubble schedules start with the idea of sending the gradient
on before computing the weight's gradient (Qi et al. 2024).
""",
    sources=(DISTBELIEF, GPIPE, ZERO_BUBBLE),
)

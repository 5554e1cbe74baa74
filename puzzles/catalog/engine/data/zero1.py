"""ZeRO1: the optimizer state is sharded."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import ZERO

PUZZLE = EnginePuzzle(
    slug="ZeRO1",
    title="The optimizer state in shards",
    targets={"sent": 24_576, "weights": 10_240, "kept": 10_240},
    arithmetic="""\
Two steps are tried. In each, reduce-scatter sends 3/4 x 8,192 = 6,144 B and all-gather 3 x 2,048 = 6,144 B
of new weights: 12,288 B, 24,576 B for both. Weights take 8,192 B, a quarter of the momentum 2,048 B: 10,240
B.
""",
    statement="""\
Training with momentum: `state = momentum * state + grad`, `weight = weight - rate * state`. In data
parallel training every device would keep the whole state, and all would do the same update.

Let each device keep the state of its quarter of the rows of each weight. `backward` makes the whole step
and returns the dictionary of updated weights, whole, on every device. It must not send more than an all-
reduce would have. Between steps a device holds the weights and a quarter of the state, nothing else.
""",
    starter='''\
class ZeRO1(ShardedEngine):
    """The optimizer state in shards."""

    def __init__(self, model_dim, hidden_dim, rate, momentum):
        """Make room for the weights, and for your quarter of the state."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your part out of params; they are only lent."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16). Makes the step; returns the updated weights (your own arrays, not copies)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "An all-reduce is a reduce-scatter and an all-gather. What could be done between the two?",
        (
            "`self.reduce_scatter(grad)` gives you the rows of the summed gradient whose state you hold: a quarter "
            "along axis 0."
        ),
        (
            "Update your rows: `state[...] = momentum * state + shard`; then `weight[...] = self.all_gather(mine - "
            "rate * state)`, with `mine` your rows of the weight."
        ),
    ),
    concept="""\
The update works number by number, so it can be split like anything else. The state need not exist more than
once among all devices, and nothing more is sent: the gathered weights take the place of the gathered
gradients.
""",
    in_practice="""\
This is stage 1 of ZeRO (Rajbhandari et al. 2020); with Adam, the state is two numbers for each weight and
usually kept in float32, so it is most of the memory.
""",
    sources=(ZERO,),
)

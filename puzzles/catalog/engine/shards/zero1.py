"""ZeRO1: the optimizer state is sharded."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import ZERO

PUZZLE = EnginePuzzle(
    slug="ZeRO1",
    title="Shard the optimizer state",
    targets={"sent": 24_576, "weights": 10_240, "kept": 10_240},
    arithmetic="""\
Two steps are tried. In each, reduce-scatter sends 3/4 x 8,192 = 6,144 B and all-gather sends 3 x 2,048 = 6,144
B of new weights: 12,288 B, or 24,576 B for both steps. Weights take 8,192 B, a quarter of the momentum 2,048
B: 10,240 B.
""",
    statement="""\
Training with momentum: `state = momentum * state + grad`, `weight = weight - rate * state`. In data parallel
training, every device would keep the full state, and all would compute the same update.

Let each device keep the state of its quarter of the rows of each weight. `backward` makes the whole step and
returns the dictionary of updated weights, in full, on every device. It must not send more than an all-reduce
would. Between steps, a device holds only the weights and a quarter of the state.

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); updated weights have the same names.
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
        """Copy your part out of params: it is valid only during this call."""
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
        "An all-reduce is a reduce-scatter followed by an all-gather. What could you do between the two?",
        (
            "`self.reduce_scatter(grad)` gives you the rows of the summed gradient for which you hold the state: a "
            "quarter along axis 0."
        ),
        (
            "Update your rows: `state[...] = momentum * state + shard`; then `weight[...] = self.all_gather(mine - "
            "rate * state)`, where `mine` are your rows of the weight."
        ),
    ),
    concept="""\
The update treats each number separately, so it can be split like anything else. The devices together need only
one copy of the state. Nothing more is sent, because gathering the weights replaces gathering the gradients.
""",
    in_practice="""\
This is stage 1 of ZeRO (Rajbhandari et al. 2020). With Adam, the state is two numbers per weight, usually in
float32, so it takes most of the memory.
""",
    sources=(ZERO,),
)

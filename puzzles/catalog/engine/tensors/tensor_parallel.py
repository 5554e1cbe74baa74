"""TensorParallel: the first weight split by columns, the second by rows."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import MEGATRON

PUZZLE = EnginePuzzle(
    slug="TensorParallel",
    title="Columns, then rows",
    targets={"sent": 1_536, "flops": 24_576, "weights": 2_048},
    arithmetic="""\
The output of the full batch is 8 x 16 x 4 = 512 B; an all-reduce of it sends 2 x 3/4 x 512 = 768 B, once
forward and once backward: 1,536 B. Each product is 2 x 8 x 16 x 16 = 4,096 flops, six of them: 24,576. A
quarter of the weights is 2,048 B.
""",
    statement="""\
Every device gets the full batch, (8, 16), and returns the full output. The model is divided: device i holds a
quarter of the columns of w0 and the matching quarter of the rows of w1.

`backward` returns your part of each weight's gradient, in the shape of your part, and under 'x' the gradient
of the full input. One sum in each direction is enough.

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); gradients have the same names.
""",
    starter='''\
class TensorParallel(ShardedEngine):
    """Columns, then rows."""

    def __init__(self, model_dim, hidden_dim):
        """Make room for your part of the weights."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your part out of params: it is valid only during this call."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: the full batch, (8, 16). Returns the full output."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (8, 16). Returns your parts of the gradients, (16, 16) each, and 'x': (8, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "relu works on each number separately, so a quarter of z's columns is all that a device needs.",
        "`relu(x @ w0_columns) @ w1_rows` already has the right shape. What is wrong with its numbers?",
        (
            "It is a partial sum: `self.all_reduce(...)` of it is the output. In backward, `dz @ w0_columns.T` is also "
            "a partial sum, of the input's gradient. The weights' gradients need no communication."
        ),
    ),
    concept="""\
Cutting the first weight by columns and the second by rows puts the cut at the nonlinearity, so two layers cost
one all-reduce.
""",
    in_practice="""\
Megatron-LM cuts the two halves of a transformer's MLP like this, and attention by heads (Shoeybi et al. 2019). It
sends activations in every layer, so it is used within one machine.
""",
    sources=(MEGATRON,),
)

"""SequenceParallel: all-gather and reduce-scatter instead of an all-reduce."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import MEGATRON, SEQUENCE_PARALLELISM

PUZZLE = EnginePuzzle(
    slug="SequenceParallel",
    title="Gather and scatter instead of all-reduce",
    targets={"sent": 1_536, "flops": 24_576, "collectives": 4, "weights": 2_048, "peak": 7_552},
    arithmetic="""\
Gathering 2 rows of 64 B sends 3 x 128 = 384 B, and the reduce-scatter of 512 B sends 3/4 x 512 = 384 B. Forward and
backward each do one of both: 1,536 B in 4 collectives. Memory peaks at the last reduce-scatter: weights and
gradients 4,096, x, z, dz, grads and the partial dx of the full batch 512 each, two results of 128: 6,912 B. The
target, 7,552 B, leaves room for one more activation of 512 B and for the 128 B of input rows.
""",
    statement="""\
As in TensorParallel, the weights are cut by columns and rows. But between the layers, no device should hold the
whole batch: `forward` gets your 2 rows and returns your 2 rows of the output, `backward` gets your rows of the
gradient and returns 'x' for your rows.

It must not send more than TensorParallel does.

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); gradients have the same names.
""",
    starter='''\
class SequenceParallel(ShardedEngine):
    """Gather and scatter instead of reducing."""

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
        """x: your rows, (2, 16). Returns your rows of the output."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: your rows, (2, 16). Returns your parts of the weights' gradients, and 'x': (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        (
            "An all-reduce is a reduce-scatter followed by an all-gather. Which half goes before the two layers, and "
            "which goes after?"
        ),
        "Gather the rows of x before the first product, and reduce-scatter the partial outputs.",
        (
            "forward: `x = self.all_gather(x)`, keep it and z, return `self.reduce_scatter(relu(z) @ "
            "self.w1)`. backward: gather `grads`, and `self.reduce_scatter(dz @ self.w0.T)` is 'x'. Do not gather x "
            "again."
        ),
    ),
    concept="""\
A device sends as many bytes as in tensor parallelism. But the operations between two blocks (norms, dropout, residuals)
are computed and stored only once over all devices, instead of once on each.
""",
    in_practice="""\
Megatron-LM calls this sequence parallelism, because the rows are a sequence's tokens (Korthikanti et al.
2022).
""",
    sources=(SEQUENCE_PARALLELISM, MEGATRON),
)

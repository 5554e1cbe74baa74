"""OneBucket: one all-reduce for all gradients."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_DDP

PUZZLE = EnginePuzzle(
    slug="OneBucket",
    title="One collective for all gradients",
    targets={"sent": 12_288, "flops": 20_480, "collectives": 1},
    arithmetic="""\
The same 8,192 B of gradients in one array: 2 x 3/4 x 8,192 = 12,288 B, in 1 call.
""",
    statement="""\
As in DataParallel, but a device may make only one collective call, because every call adds latency, no matter
how much it carries.

Send both gradients as one flat array, and take them apart again.

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); gradients have the same names.
""",
    starter='''\
class OneBucket(ShardedEngine):
    """One collective for all gradients."""

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
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16). Returns both gradients, of the full batch, after a single collective."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "All-reduce doesn't care what the numbers mean, only that they are in the same order on every device.",
        "`np.concatenate` joins flat arrays; `ravel` and `reshape` convert to flat arrays and back.",
        (
            "`bucket = self.all_reduce(np.concatenate([w0_grad.ravel(), w1_grad.ravel()]))`, then `np.split(bucket, "
            "[w0_grad.size])`, and reshape each part."
        ),
    ),
    concept="""\
A collective costs latency, which does not depend on its size, and bandwidth, which does. Many small
collectives pay the latency many times; a bucket pays it once.
""",
    in_practice="""\
PyTorch fills buckets of 25 MB by default, in the order in which backward produces the gradients, and reduces
one while the next fills (Li et al. 2020).
""",
    sources=(PYTORCH_DDP,),
)

"""DataParallel: replicate the weights, sum the gradients."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_DDP, RING_ALL_REDUCE

PUZZLE = EnginePuzzle(
    slug="DataParallel",
    title="Replicate the weights, sum the gradients",
    targets={"sent": 12_288, "flops": 20_480},
    arithmetic="""\
A weight has 16 x 64 = 1,024 numbers, 4,096 B; both gradients are 8,192 B. All-reduce sends 2(N-1)/N S = 2 x 3/4
x 8,192 = 12,288 B. A device has 2 rows. Each product is 2 x 2 x 16 x 64 = 4,096 flops, two forward and
three backward (the input's gradient is not needed): 20,480.
""",
    statement="""\
Every device holds the whole model, `relu(x @ w0) @ w1`, and gets 2 of the 8 rows of the batch. `params` holds
'layer_0/weights' (16, 64) and 'layer_1/weights' (64, 16).

`forward` returns the output of your rows. `backward` gets the gradient of your rows' output. It returns a
dictionary with the gradients of both weights, summed over the full batch, on every device.
""",
    starter='''\
class DataParallel(ShardedEngine):
    """Replicate the weights, sum the gradients."""

    def __init__(self, model_dim, hidden_dim):
        """Make room for the weights."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy the weights out of params: it is valid only during this call."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16). Returns both gradients, of the full batch."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Write it for one device first: `np.zeros` for the weights, a list for what backward needs from forward.",
        "A weight's gradient is a sum over rows, and other devices have the other rows.",
        (
            "At the end of backward, return `self.all_reduce(w0_grad)` under 'layer_0/weights', and do the same for "
            "the other weight. The first layer's gradient is `x.T @ dz`, with `dz = (grads @ self.w1.T) * (z > 0)`."
        ),
    ),
    concept="""\
The gradient of a batch is the sum of its rows' gradients. So devices that hold the same weights can each
take some rows, and one sum for each weight gives all of them the same gradient.
""",
    in_practice="""\
PyTorch's DistributedDataParallel does this (Li et al. 2020). Its all-reduce uses a ring or a tree, and starts
while backward is still running.
""",
    sources=(PYTORCH_DDP, RING_ALL_REDUCE),
)

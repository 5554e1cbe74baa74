"""FSDPLean: FSDP that does not gather what only the input's gradient needs."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP

PUZZLE = EnginePuzzle(
    slug="FSDPLean",
    title="FSDP without the input's gradient",
    targets={"sent": 15_360, "flops": 20_480, "collectives": 5, "weights": 2_048, "peak": 9_088},
    arithmetic="""\
As FSDP, 18,432 B, but without the second gather of the first weight, 3 x 1,024 B: 15,360 B in 5 collectives.
""",
    statement="""\
As in FSDP, but the model's input is data, so its gradient is not needed: `backward` returns your shards of
the two gradients and no 'x'. What can you avoid sending?

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); gradients have the same names.
""",
    starter='''\
class FSDPLean(ShardedEngine):
    """FSDP without the gradient of the input."""

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
        """grads: (2, 16). Returns your shards of both gradients."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "Which products of backward are needed only for 'x'?",
        "The first weight's own gradient is `x.T @ dz`, which uses no weight.",
        (
            "Take your FSDP and leave out `dx`, and with it the `self.all_gather(self.w0)` in backward. Everything "
            "else stays."
        ),
    ),
    concept="""\
Backward needs a layer's weight only to pass the gradient on to the previous layer. The first layer has no
previous layer.
""",
    in_practice="""\
Autograd systems prune this automatically when the input requires no gradient. A hand-written communication
plan has to do it explicitly (Zhao et al. 2023).
""",
    sources=(PYTORCH_FSDP,),
)

"""FSDP: all-gather a weight, compute with it, discard it."""

from puzzles.catalog.engine.puzzle import EnginePuzzle
from puzzles.catalog.papers import PYTORCH_FSDP, ZERO

PUZZLE = EnginePuzzle(
    slug="FSDP",
    title="Gather, compute, discard",
    targets={"sent": 18_432, "flops": 24_576, "collectives": 6, "weights": 2_048, "peak": 9_088},
    arithmetic="""\
A shard of a weight is 1,024 B. Gathering sends 3 x 1,024 B; both weights twice: 12,288 B. Reduce-scatter
sends 3/4 x 4,096 B, twice: 6,144 B. The sum is 18,432 B, in 6 collectives. Memory peaks when the last gradient is
reduced: shards
2,048, the full gradient 4,096, two shards of gradients 2,048, dz 512, and x, dx and the output 128 each:
9,088 B. With everything replicated: 8,192 + 8,192, z, h and dz 1,536, x, grads and output 384: 18,304 B. (The
DataParallel solution measures 25,984 B: the results of its all-reduces, 8,192 B, are held in addition to their
inputs, and h is already gone.)
""",
    statement="""\
Now the weights themselves are sharded: device i keeps the i-th quarter of the rows of each weight. A full
weight, or a full gradient, may exist only while it is used.

`forward` returns your rows' output. `backward` returns your shard of each summed gradient, and under 'x'
the gradient of your rows' input. The memory target leaves no room for two full arrays at the same time.

The model is `relu(x @ w0) @ w1`. `params` holds w0 as 'layer_0/weights', (16, 64), and w1 as 'layer_1/weights',
(64, 16); gradients have the same names.
""",
    starter='''\
class FSDP(ShardedEngine):
    """Gather, compute, discard."""

    def __init__(self, model_dim, hidden_dim):
        """Make room for your part of the weights."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def load_checkpoint(self, params):
        """Copy your rows out of params: a view would keep the full array."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def forward(self, x):
        """x: your rows, (2, 16). Returns (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----

    def backward(self, grads):
        """grads: (2, 16). Returns your shards of both gradients, and 'x': (2, 16)."""
        # ----- your code -----
        raise NotImplementedError
        # ----- end of your code -----
''',
    hints=(
        "`self.all_gather(self.w0)` is a full weight. If you don't assign it to a name, it is freed right after use.",
        "Gather each weight again in backward; pass a full gradient straight to `self.reduce_scatter(...)`.",
        (
            "Order matters for the peak: the gradient of w1 first, then dz with the gathered w1, then `dx = dz @ "
            "self.all_gather(self.w0).T`, and the gradient of w0 last. `del` what you no longer need: z after dz, "
            "`grads` after dz."
        ),
    ),
    concept="""\
With N devices, weights and gradients take 1/N of the memory. The price is a second gather of each weight: a device
sends 3/2 times as many bytes as in data parallel training. Where a model's input is data, nobody needs the gradient
'x', and the second gather of the first weight is not needed either: 15,360 B. Autograd leaves it out by itself.
""",
    in_practice="""\
This is ZeRO stage 3 (Rajbhandari et al. 2020) and Fully Sharded Data Parallel (Zhao et al. 2023), which
prefetches the next layer's weights while the current one computes.
""",
    sources=(ZERO, PYTORCH_FSDP),
)

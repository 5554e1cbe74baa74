"""Layout puzzle 10: ZeRO or tensor parallelism; the batch decides."""

from lib.layout import training
from lib.layout.examples import megatron_mlp
from puzzles.catalog.papers import MEGATRON, PYTORCH_FSDP, ZERO

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="zero_or_tensor",
    title="ZeRO or tensor parallelism",
    build=lambda: training(megatron_mlp(devices=8, tokens=4096, width=64), "adam"),
    given={"matmul1": ((1, 1), (1, 8)), "matmul2": ((1, 8), (8, 1))},
    may_change=True,
    annotations=6,
    memory_cap=1_600_000,
    target=5_767_168,
    best=1_835_008,
    statement="""\
Someone has tuned the layer of `train_layer` on 64 tokens: tensor parallelism on all 8 devices, configured on `matmul1`
and `matmul2`. Then the batch grew to 4,096 tokens, and the step became slow. If the rule completes the plan, a step
moves these bytes:

| bytes moved in a step | 64 tokens | 1,024 tokens | 4,096 tokens |
|---|---|---|---|
| weights split by columns | 229,376 | 3,670,016 | 14,680,064 |
| tokens split | 1,835,008 | 1,835,008 | 1,835,008 |

But with tokens split, every device holds full weights, their gradients and two more copies for Adam: 1,966,080 bytes,
which exceeds the cap. Memory counts the values that last: inputs, weights, optimizer state, gradients of weights, and
the activations that backward uses. Gradients of activations and temporary copies are not counted. Bytes are counted for
the full step.

Configure up to six operators, including these two. Reduce-scatter the gradients (`up.grad`, `down.grad`), split the
state (`down.state.new` or `down.update`), and where that is not enough, store the weight in parts: `up` is stored with
the layout of `up.new`.
""",
    starter='''\
def zero_or_tensor(graph: Graph) -> None:
    """matmul1 is ((1, 1), (1, 8)), matmul2 is ((1, 8), (8, 1)); you may change them."""
    # ----- your code -----
    # graph.shard("matmul1", ((..., ...), (..., ...)))

    # ----- end of your code -----
''',
    hints=(
        "4,096 tokens of 64 columns are more than a weight of 64 by 256. Move what is smaller.",
        "A gradient that is reduce-scattered and a weight that is gathered move as much as an all-reduce of the "
        "gradient. So splitting the optimizer is free.",
        "With gradients, states and both updates in eighths, you have stage 2 of ZeRO: 1,622,016 bytes. A weight that "
        "is stored in eighths is gathered in forward instead of after the update. Do not choose `down`: backward uses "
        "it too, so it would be gathered twice.",
        '`graph.shard("matmul1", ((8, 1), (1, 1)))`, the same for `matmul2`; `graph.shard("up.grad", ((8, 1), (8, 1)), '
        'out=(1, 8))`, the same for `down.grad`; `graph.shard("up.new", ((1, 8),))`; '
        '`graph.shard("down.update", ((1, 8), (1, 1, 8)))`.',
    ),
    concept="""\
Data parallelism moves gradients of weights, tensor parallelism moves activations. Weights do not grow with the batch.
ZeRO removes the copies that data parallelism keeps, and its first two stages move no more bytes.
""",
    in_practice="""\
Large batches are trained with ZeRO or FSDP (Rajbhandari et al. 2020; Zhao et al. 2023) across machines, and tensor
parallelism (Shoeybi et al. 2019) is kept inside a machine, or used where the batch is small, as in inference.
""",
    sources=(ZERO, PYTORCH_FSDP, MEGATRON),
)

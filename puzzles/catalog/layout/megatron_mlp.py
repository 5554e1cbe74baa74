"""Layout puzzle 2: the MLP of Megatron-LM on a mesh of two axes."""

from lib.layout.examples import megatron_mlp
from puzzles.catalog.papers import MEGATRON, SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="megatron_mlp",
    title="The Megatron MLP",
    build=megatron_mlp,
    annotations=2,
    memory_cap=68_000,
    target=98_304,
    best=49_152,
    statement="""\
Two matmuls with a gelu between them, as in every transformer: `matmul1` from 64 to 256 columns, `gelu`, `matmul2` back
to 64, and `residual`, which adds the input. There are 64 tokens and 8 devices.

Splitting only the tokens moves nothing, but then every device holds both full weights, which do not fit. Splitting the
weights over all devices fits easily, but moves many bytes. Configure one operator so that tokens and weights are both
split.

A sum need not be complete on every device. Give `out=`, the number of parts of each dimension of the output, and the
sum is reduce-scattered instead of all-reduced. That earns the third star.
""",
    starter='''\
def megatron_mlp(graph: Graph) -> None:
    """up (64, 256), gelu, down (256, 64), residual: on 8 devices."""
    # ----- your code -----
    # graph.shard("matmul1", ((..., ...), (..., ...)))

    # ----- end of your code -----
''',
    hints=(
        "Split the columns of the first weight. Gelu works on each part separately, and the second matmul's contracted "
        "dimension is already split in the same way.",
        "Only one all-reduce is left, after `matmul2`. The more you split the tokens, the smaller it is.",
        'The memory cap allows two parts of the tokens and four of the columns: `graph.shard("matmul1", ((2, 1), (1, '
        "4)))`.",
        "`residual` only adds, so it can work on any part of the sum. Reduce-scatter it: "
        '`graph.shard("matmul2", ((2, 4), (4, 1)), out=(8, 1))`.',
    ),
    concept="""\
The first weight is split by columns, the second by rows. The elementwise function in the middle works on the parts, and
a single all-reduce at the end completes the sum. Splitting the tokens along a second axis makes that all-reduce
smaller, but every device along that axis holds a copy of the weights. A reduce-scatter instead moves half as many
bytes, and leaves each device its part of the tokens, as in sequence parallelism.
""",
    in_practice="""\
Megatron-LM (Shoeybi et al. 2019) writes these collectives into the model by hand. With annotations, a compiler inserts
them. Large runs call the two axes tensor parallelism and data parallelism.
""",
    sources=(MEGATRON, SHARDING_PROPAGATION),
)

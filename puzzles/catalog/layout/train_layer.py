"""Layout puzzle 9: a residual layer, trained with Adam on two axes of parallelism."""

from lib.layout import training
from lib.layout.examples import megatron_mlp
from puzzles.catalog.papers import MEGATRON, SEQUENCE_PARALLELISM, ZERO

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="train_layer",
    title="A layer, trained with Adam",
    build=lambda: training(megatron_mlp(devices=8, tokens=1024, width=64), "adam"),
    annotations=4,
    memory_cap=590_000,
    target=1_769_472,
    best=1_310_720,
    statement="""\
The two matmuls of a transformer's MLP with a gelu between and the residual around, 1,024 tokens, 64 columns, 256 in
the middle, 8 devices, trained with Adam. `up.state` has the two averages that Adam keeps for `up`, `up.state.new`
computes the next ones from `up.grad`, `up.update` the new weight, and `up.new` stores it where `up` is.

Memory counts what lasts: inputs, weights, optimizer state, gradients of weights, and the activations that backward
uses. Gradients of activations and temporary copies are not counted. Bytes are counted for the full step.

The optimizer need not be where the weight is. A state that is split over all devices takes an eighth. The gradient can
be scattered like it, and only the updated weight has to be gathered.

Configure four operators. The rule computes an optimizer where its weight is stored, unless you configure it.
""",
    starter='''\
def train_layer(graph: Graph) -> None:
    """matmul1, gelu, matmul2, residual; gradients; Adam."""
    # ----- your code -----
    # graph.shard("matmul2", ((..., ...), (..., ...)), out=(..., ...))
    # graph.shard("down.grad", ((..., ...), (..., ...)), out=(..., ...))

    # ----- end of your code -----
''',
    hints=(
        "Splitting only tokens moves 1,835,008 bytes, all for the gradients, and splitting only columns 5,505,024, all "
        "for activations. Both axes together move less than either.",
        "Tokens in four, columns in two: `matmul2` sums over pairs. Scatter its sums by columns, and those of "
        "`down.grad` over all devices.",
        "`matmul1.grad` follows `gelu`: without your help the rule takes another strategy for it there.",
        'After `graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))` and `graph.shard("down.grad", ((4, 1), (4, 2)), '
        'out=(2, 4))`, configure `graph.shard("matmul1.grad", ((4, 2), (4, 2)))` and `graph.shard("down.update", '
        "((2, 4), (1, 2, 4)))`.",
    ),
    concept="""\
Tensor parallelism on the short axis, data parallelism on the long one, sums scattered on both, optimizer state where
the scattered gradient arrives: each is a layout, and together they are a point of one search.
""",
    in_practice="""\
Megatron-LM (Shoeybi et al. 2019) combines the two axes; with sequence parallelism (Korthikanti et al. 2022) its sums
are reduce-scattered. A distributed optimizer, the first stage of ZeRO (Rajbhandari et al. 2020), is usually added.
""",
    sources=(MEGATRON, SEQUENCE_PARALLELISM, ZERO),
)

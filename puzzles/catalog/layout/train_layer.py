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
A transformer's MLP: two matmuls with a gelu between them, and a residual. There are 1,024 tokens, 64 columns, 256 in
the middle, and 8 devices. It is trained with Adam. `up.state` has the two averages that Adam keeps for `up`.
`up.state.new` computes the next averages from `up.grad`, `up.update` computes the new weight, and `up.new` stores it in
the layout of `up`.

Memory counts the values that last: inputs, weights, optimizer state, gradients of weights, and the activations that
backward uses. Gradients of activations and temporary copies are not counted. Bytes are counted for the full step.

The optimizer state need not have the layout of its weight. Split over all devices, it takes an eighth of the memory.
The gradient can be reduce-scattered in the same way, and only the updated weight has to be gathered.

Configure four operators. Unless you configure an optimizer, the rule computes it in the layout of its weight.
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
        "Splitting only tokens moves 1,835,008 bytes, all for the gradients, and splitting only columns 3,670,016, all "
        "for activations. Both axes together move less than either.",
        "Split the tokens in four and the columns in two: `matmul2` sums over pairs. Reduce-scatter its sums by "
        "columns, and the sums of `down.grad` over all devices.",
        "From `residual.grad` the rule goes on to `gelu.grad`, which then pays 2,097,152 bytes for its sums. The rule "
        "does not go beyond a configured operator: if you configure `residual.grad`, it reaches `gelu.grad` from the "
        "other side.",
        'After `graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))` and `graph.shard("down.grad", ((4, 1), (4, 2)), '
        'out=(2, 4))`, configure `graph.shard("residual.grad", ((4, 2), (4, 2)))` and `graph.shard("down.update", '
        "((2, 4), (1, 2, 4)))`.",
    ),
    concept="""\
Tensor parallelism on the short axis, data parallelism on the long axis, reduce-scattered sums on both, and optimizer
states in the layout of the scattered gradients: each is a choice of layouts, and one search can find all of them.
""",
    in_practice="""\
Megatron-LM (Shoeybi et al. 2019) combines the two axes; with sequence parallelism (Korthikanti et al. 2022) its sums
are reduce-scattered. A distributed optimizer, the first stage of ZeRO (Rajbhandari et al. 2020), is usually added.
""",
    sources=(MEGATRON, SEQUENCE_PARALLELISM, ZERO),
)

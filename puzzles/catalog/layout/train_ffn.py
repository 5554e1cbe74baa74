"""Layout puzzle 8: the feed-forward network as a full training step."""

from lib.layout import training
from lib.layout.examples import feed_forward
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="train_ffn",
    title="Training the feed-forward",
    build=lambda: training(feed_forward(batch=256), "sgd"),
    annotations=2,
    memory_cap=68_500,
    target=412_672,
    best=330_752,
    statement="""\
Dense, ReLU, Dense again, 64 columns, 256 rows, 8 devices, but now the full training step: forward, backward, the
gradients of weights and biases, and the update by SGD. `weight1.grad` is the gradient of `weight1`, `weight1.update`
the updated weight, `weight1.new` the same where the weight is stored. `add2.target` holds the labels for the output
`add2`.

Memory counts what lasts: inputs, weights, gradients of weights, and the activations that backward uses (`relu` and
`add2`). Gradients of activations and temporary copies are not counted. Bytes are counted for all three parts.

A forward that moves little may make a step that moves much. Every device that splits the batch adds a summand to each
weight's gradient. Every device that splits the columns moves activations, twice.

Configure two operators, of any part of the step. With `out=` sums are reduce-scattered; that earns the third star.
""",
    starter='''\
def train_ffn(graph: Graph) -> None:
    """A training step: matmul1, add1, relu, matmul2, add2, and their gradients."""
    # ----- your code -----
    # graph.shard("...", (...), out=(...))
    # graph.shard("...", (...), out=(...))

    # ----- end of your code -----
''',
    hints=(
        "`matmul1` as ((2, 1), (1, 4)) makes a step of 656,384 bytes. Count what moves if rows are split further.",
        "Rows in four, columns in two. `matmul2` then sums over pairs; scatter its sums and the rule spreads that "
        "through forward and backward.",
        "The gradient of `weight1` is whole on four devices each, which the cap does not allow. Its sums can stay "
        "scattered until the update.",
        '`graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))` and `graph.shard("weight1.grad", ((4, 2), (4, 1)), '
        "out=(4, 2))`.",
    ),
    concept="""\
Split the batch and gradients of weights are summed; split the weights and activations move, in forward and again in
backward. The larger the batch, the cheaper the first becomes in comparison. On 64 rows, the forward that moves eight
times less than the rule's makes a more expensive step; on 1,024 rows the order is reversed.
""",
    in_practice="""\
A planner that optimizes inference layouts does not optimize training. Compilers that propagate annotations, such as
that of MindSpore (2023), plan forward and backward together for this reason.
""",
    sources=(SHARDING_PROPAGATION,),
)

"""Layout puzzle 8: the feed-forward network as a full training step."""

from lib.layout import training
from lib.layout.examples import feed_forward
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="train_ffn",
    title="Training the feed-forward",
    build=lambda: training(feed_forward(batch=256), "sgd"),
    annotations=3,
    memory_cap=68_500,
    target=412_672,
    best=330_752,
    statement="""\
The two dense layers with a ReLU again, with 64 columns and 256 rows on 8 devices, but now the full training step:
forward, backward, the gradients of weights and biases, and the update by SGD. `weight1.grad` is the gradient of
`weight1`, `weight1.update` is the updated weight, and `weight1.new` stores it in the layout of the weight.
`add2.target` holds the labels for the output `add2`.

Memory counts the values that last: inputs, weights, gradients of weights, and the activations that backward uses
(`relu` and `add2`). Gradients of activations and temporary copies are not counted. Bytes are counted for all three
parts.

A forward that moves few bytes may belong to a step that moves many. If the batch is split, the gradient of each weight
has to be summed. If the columns are split, activations move, in forward and again in backward.

Configure up to three operators in any part of the step. With `out=`, sums are reduce-scattered; that earns the third
star.
""",
    starter='''\
def train_ffn(graph: Graph) -> None:
    """A training step: matmul1, add1, relu, matmul2, add2, and their gradients."""
    # ----- your code -----
    # graph.shard("...", (...), out=(...))
    # graph.shard("...", (...))
    # graph.shard("...", (...), out=(...))

    # ----- end of your code -----
''',
    hints=(
        "`matmul1` as ((2, 1), (1, 4)) makes a step of 1,074,176 bytes. Count what moves if rows are split further.",
        "Split the rows in four and the columns in two. `matmul2` then sums over pairs. Reduce-scatter its sums.",
        "From `add2.grad` the rule goes on to `relu.grad`, which then pays 131,072 bytes for its sums. The rule does "
        "not go beyond a configured operator: configure `add2.grad`, and it reaches `relu.grad` from the other side.",
        "The full gradient of `weight2` on every device exceeds the cap. Its sums can stay scattered until the update.",
        '`graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))`, `graph.shard("add2.grad", ((4, 2), (4, 2)))` and '
        '`graph.shard("weight2.grad", ((4, 1), (4, 2)), out=(2, 4))`.',
    ),
    concept="""\
If you split the batch, weight gradients are summed. If you split the weights, activations move, in forward and again in
backward. The larger the batch, the cheaper it is to split the batch. On 64 rows, the forward that moves eight
times less than the rule's makes a more expensive step; on 1,024 rows the order is reversed.
""",
    in_practice="""\
A planner that optimizes layouts for inference does not optimize training. So compilers that propagate annotations, such
as MindSpore's (2023), plan forward and backward together.
""",
    sources=(SHARDING_PROPAGATION,),
)

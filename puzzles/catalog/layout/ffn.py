"""Layout puzzle 1: MindSpore's feed-forward example, with a cheaper second half."""

from lib.layout.examples import feed_forward
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="ffn",
    title="The feed-forward network",
    build=feed_forward,
    given={"matmul1": ((2, 1), (1, 4))},
    annotations=1,
    memory_cap=40_000,
    target=12_288,
    best=12_288,
    statement="""\
Two dense layers with a ReLU between them: `matmul1`, `add1`, `relu`, `matmul2`, `add2`, all 64 by 64, on 8 devices.
`matmul1` is configured as ((2, 1), (1, 4)), and breadth-first propagation does the rest: when it reaches an operator
along an edge, it picks the strategy for which the redistribution on that edge costs least. That avoids all
redistribution up to `matmul2`. But `matmul2` then has its contracted dimension split, and pays 98,304 bytes for an
all-reduce.

The rule looks at one edge at a time. Configure one more operator so that the total becomes eight times smaller.
""",
    starter='''\
def ffn(graph: Graph) -> None:
    """The feed-forward network; matmul1 is configured as ((2, 1), (1, 4))."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "An edge that pays a little can save an operator that pays a lot.",
        "If every device holds the full second weight, `matmul2` has nothing to sum. It then needs full rows.",
        "From (2, 4) to (8, 1) is an all-to-all in groups of four: each device keeps a quarter of its piece and "
        'exchanges the rest. `graph.shard("matmul2", ((8, 1), (1, 1)))` requests that.',
    ),
    concept="""\
You can move bytes in two ways: redistribute activations, or complete sums with collectives. Which is cheaper depends on
the shapes. A greedy rule that never moves an activation ends up moving results. One well-placed annotation is enough to
change that.
""",
    in_practice="""\
The documentation of MindSpore (2023) shows this network, and what its compiler derives from the one annotation.
It advises users to configure the operators that have parameters, because these matter most.
""",
    sources=(SHARDING_PROPAGATION,),
)

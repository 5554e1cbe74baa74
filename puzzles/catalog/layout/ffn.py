"""Layout puzzle 1: MindSpore's feed-forward example, with a cheaper second half."""

from lib.layout.examples import feed_forward
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    number=1,
    slug="ffn",
    title="The feed-forward network",
    build=feed_forward,
    given={"matmul1": ((2, 1), (1, 4))},
    annotations=1,
    memory_cap=40_000,
    target=12_288,
    statement="""\
Dense, ReLU, Dense: `matmul1`, `add1`, `relu`, `matmul2`, `add2`, all 64 by 64, on 8 devices. `matmul1` is
configured as ((2, 1), (1, 4)), and propagation takes it from there: breadth-first, each operator takes the
strategy that is cheapest on the edge it is reached by. That avoids all redistribution up to `matmul2`, which
then has its contracted dimension split and pays 98,304 bytes for an all-reduce.

The rule looks at one edge at a time. Configure one more operator so that the whole is eight times cheaper.
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
        "If the second weight stands whole on every device, `matmul2` has nothing to add up. It then wants whole rows.",
        "From (2, 4) to (8, 1) is an all-to-all in groups of four: each device keeps a quarter of its piece and "
        'swaps the rest. `graph.shard("matmul2", ((8, 1), (1, 1)))` asks for that.',
    ),
    concept="""\
Redistribution of activations and collectives of operators are two ways to pay, and the cheaper one depends on
shapes. A greedy rule that never moves an activation ends up moving results. One well-placed annotation is
enough to change its mind.
""",
    in_practice="""\
The documentation of MindSpore (2023) shows exactly this network, and what its compiler makes of the one
annotation. Users are advised to configure the operators that have parameters, since these decide most.
""",
    sources=(SHARDING_PROPAGATION,),
)

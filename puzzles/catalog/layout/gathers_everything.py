"""Layout puzzle 7: find and fix the annotation that makes the plan gather everything."""

from lib.layout.examples import feed_forward
from puzzles.catalog.papers import GSPMD, SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="gathers_everything",
    title="All gathered at once",
    build=lambda: feed_forward(devices=8, batch=64, width=64, hidden=256),
    given={"matmul1": ((2, 1), (1, 4)), "relu": ((1, 1),), "matmul2": ((2, 4), (4, 1))},
    may_change=True,
    annotations=2,
    memory_cap=80_000,
    target=98_304,
    best=49_152,
    statement="""\
Someone has configured three operators of a feed-forward network with a hidden width of 256, on 8 devices, and
wonders why it is slow: it moves 557,056 bytes, most of them on one edge.

Change one or two annotations. `puzzles grade` shows which edges pay, so you can grade the given annotations first.

A sum need not be complete on every device. Give `out=`, the number of parts of each dimension of the output, and the
sum is reduce-scattered instead of all-reduced. That earns the third star.
""",
    starter='''\
def gathers_everything(graph: Graph) -> None:
    """matmul1 is ((2, 1), (1, 4)), relu is ((1, 1),), matmul2 is ((2, 4), (4, 1))."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "Read the strategies in the order of the graph. What does each operator produce, and what does the next one "
        "need?",
        "A strategy of ones is not a harmless default: it requests the full tensor on every device.",
        '`relu` can work on the parts that it gets: `graph.shard("relu", ((2, 4),))`.',
        'Then only the sums of `matmul2` pay. Reduce-scatter them: `graph.shard("matmul2", ((2, 4), (4, 1)), out=(8, '
        "1))`.",
    ),
    concept="""\
The compiler obeys an annotation even where it is slow. If a tensor in the middle is annotated as replicated, the
compiler gathers it, computes the same on all devices, and splits it again.
""",
    in_practice="""\
Such annotations are a common performance bug. That is why GSPMD (Xu et al. 2021) lets you leave
dimensions open. Check the compiled program for all-gathers that you did not ask for.
""",
    sources=(GSPMD, SHARDING_PROPAGATION),
)

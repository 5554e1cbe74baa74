"""Layout puzzle 4: a network that changes from data to model parallelism in the middle."""

from lib.layout.examples import boundary
from puzzles.catalog.papers import MEGATRON, SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="boundary",
    title="Where the parallelism changes",
    build=boundary,
    annotations=3,
    memory_cap=1_164_000,
    target=98_304,
    best=65_536,
    statement="""\
Two blocks on 8 devices. The front (`matmul1`, `relu1`, `matmul2`, and `front`, which adds its input) is narrow and
works on 16 pixels of each of 256 rows. Then `mean` averages over the pixels. The tail (`matmul3`, `relu2`, `matmul4`,
and `tail`, which adds its input) is wide, with 1,024 columns between its two weights. Splitting rows over all devices
would move nothing, but then every device holds the full weights of the tail, which exceed the memory cap.

Configure up to three operators: one that keeps the front data parallel, and others on the other side of the boundary.
The mean makes the activation sixteen times smaller; choose on which side of it to communicate.

A sum need not be complete on every device. Give `out=`, the number of parts of each dimension of the output, and the
sum is reduce-scattered instead of all-reduced. That earns the third star.
""",
    starter='''\
def boundary(graph: Graph) -> None:
    """Front: matmul1, relu1, matmul2, front. Then mean. Tail: matmul3, relu2, matmul4, tail."""
    # ----- your code -----
    # graph.shard("...", (...))
    # graph.shard("...", (...))
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "What crosses the boundary should be small, like the output of `mean`.",
        "One annotation on the tail alone also spreads to the front, where `mean` then sums over split pixels. One on "
        "the front alone spreads to the tail: nothing moves, but every device holds the full weights.",
        "Split the rows over 8 in the front; in the tail, the rows over 4 and the columns over 2: "
        '`graph.shard("front", ((8, 1, 1), (8, 1, 1)))`, `graph.shard("matmul3", ((4, 1), (1, 2)))` and '
        '`graph.shard("matmul4", ((4, 2), (2, 1)))`.',
        "Reduce-scatter the sums of the tail by rows: "
        '`graph.shard("matmul4", ((4, 2), (2, 1)), out=(8, 1))` earns the third star.',
    ),
    concept="""\
Different parts of a network prefer different kinds of parallelism. With annotations on both sides, each part has its
own, and the redistribution happens on the edge where they meet. Put that edge where the tensor is small.
The wide block splits its columns over pairs of devices and pays one all-reduce, as in Megatron-LM (Shoeybi et al.
2019).
""",
    in_practice="""\
The documentation of MindSpore (2023) lists this as one of three principles: configure the operators at the boundary
where the parallelism changes, as in a ResNet whose front is data parallel and whose tail is model parallel.
""",
    sources=(SHARDING_PROPAGATION, MEGATRON),
)

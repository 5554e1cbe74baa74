"""Layout puzzle 4: a network that changes from data to model parallelism in the middle."""

from lib.layout.examples import boundary
from puzzles.catalog.papers import MEGATRON, SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    number=4,
    slug="boundary",
    title="Where the parallelism changes",
    build=boundary,
    annotations=2,
    memory_cap=1_164_000,
    target=98_304,
    statement="""\
Two blocks on 8 devices. The front (`matmul1`, `relu1`, `matmul2`, and `front` adds its input) is narrow and works
on 16 pixels of each of 256 rows; a `mean` over the pixels; the tail (`matmul3`, `relu2`, `matmul4`, and `tail` adds
its input) is wide, with 1,024 columns between its two weights. Rows over all devices would move nothing at all, but
then the weights of the tail stand whole on each of them, and that is too much.

Configure two operators: one that keeps the front what it should be, one on the other side of the boundary. The mean
shrinks the activation sixteen times; choose on which side of it to pay.
""",
    starter='''\
def boundary(graph: Graph) -> None:
    """Front: matmul1, relu1, matmul2, front. Then mean. Tail: matmul3, relu2, matmul4, tail."""
    # ----- your code -----
    # graph.shard("...", (...))
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "Whatever crosses the boundary should be small: that is the output of `mean`.",
        "One annotation on the tail alone spreads to the front as well; one on the front alone lets the tail choose, "
        "edge by edge, and it chooses badly. Annotate the last operator of the front and the first of the tail.",
        "Rows over 8 in front, rows over 4 and columns over 2 in the tail: "
        '`graph.shard("front", ((8, 1, 1), (8, 1, 1)))` and `graph.shard("matmul3", ((4, 1), (1, 2)))`.',
    ),
    concept="""\
Different parts of a network prefer different parallelisms. Two annotations, one on each side, let each part
follow its own, and the redistribution between them falls on the edge where they meet. Put that edge where the
tensor is small. The wide block splits its columns over pairs of devices and pays one all-reduce, as in
Megatron-LM (Shoeybi et al. 2019).
""",
    in_practice="""\
The documentation of MindSpore (2023) lists this as one of three principles: configure the operators at the
boundary where the parallelism changes, as in a ResNet whose front is data parallel and whose tail is model
parallel.
""",
    sources=(SHARDING_PROPAGATION, MEGATRON),
)

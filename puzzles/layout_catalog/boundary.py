"""Layout puzzle 4: a front that likes data parallelism and a tail that likes model parallelism."""

from lib.layout.examples import boundary

from .layout_puzzle import PROPAGATION, LayoutPuzzle

PUZZLE = LayoutPuzzle(
    number=4,
    slug="boundary",
    title="Where the parallelism changes",
    build=boundary,
    annotations=2,
    memory_cap=1_062_000,
    target=65_536,
    statement="""\
A narrow front on many rows (`matmul1`, `relu`, a `mean` over 16 pixels) and a wide tail (`matmul2`, with 2,048
classes), on 8 devices. Rows over all devices would move nothing, but the weight of the tail is too large to stand
on each of them whole.

Configure two operators: one that makes the front what it should be, one at the boundary. The mean shrinks the
activation sixteen times; choose on which side of it to pay.
""",
    starter='''\
def boundary(graph: Graph) -> None:
    """Front: matmul1, relu, mean. Tail: matmul2."""
    # ----- your code -----
    # graph.shard("...", (...))
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "Whatever crosses the boundary should be small: that is the output of `mean`.",
        "One annotation on the tail alone would spread to the front, and split it the same way.",
        "Rows over 8 in front, rows over 4 and classes over 2 in the tail: "
        '`graph.shard("relu", ((8, 1, 1),))` and `graph.shard("matmul2", ((4, 1), (1, 2)))`.',
    ),
    concept="""\
Different parts of a network prefer different parallelisms. Two annotations, one on each side, let each part
follow its own, and the redistribution between them falls on the edge where they meet. Put that edge where the
tensor is small.
""",
    in_practice="""\
The documentation of MindSpore (2023) lists this as one of three principles: configure the operators at the
boundary where the parallelism changes, as in a ResNet whose front is data parallel and whose tail is model
parallel.
""",
    sources=(PROPAGATION,),
)

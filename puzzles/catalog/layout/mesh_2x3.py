"""Layout puzzle 3: six devices, whose layouts overlap in sixths."""

from lib.layout.examples import feed_forward
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="mesh_2x3",
    title="Two by three",
    build=lambda: feed_forward(devices=6, batch=48, width=48, hidden=96),
    annotations=2,
    memory_cap=35_000,
    target=18_432,
    best=9_216,
    statement="""\
The feed-forward network again, 48 to 96 to 48 columns on 48 rows, now on 6 devices. A device matrix may be 2x3 or
3x2, and no piece of one matches a piece of the other: halves and thirds of a dimension overlap in sixths.

Configure two operators. Watch what `relu` passes to `matmul2`.

A sum need not be complete on every device. Give `out=`, the number of parts of each dimension of the output, and the
sum is reduce-scattered instead of all-reduced. That earns the third star.
""",
    starter='''\
def mesh_2x3(graph: Graph) -> None:
    """The feed-forward network on 6 devices."""
    # ----- your code -----
    # graph.shard("matmul1", ((..., ...), (..., ...)))
    # graph.shard("matmul2", ((..., ...), (..., ...)))

    # ----- end of your code -----
''',
    hints=(
        "Splitting the rows over six devices moves nothing, but then every device holds both full weights, which "
        "exceed the cap.",
        "Let both matmuls split rows and columns in the same way. Between them, only the columns of `relu` have to be "
        "gathered, within small groups.",
        "Groups of two are cheaper than groups of three: split the rows in three and the columns in two, for both. "
        '`graph.shard("matmul1", ((3, 1), (1, 2)))`, and the same for `matmul2`.',
        "`matmul2` may also take the columns as they are and reduce-scatter its sums among pairs. These are half as "
        "wide: "
        '`graph.shard("matmul2", ((3, 2), (2, 1)), out=(6, 1))`.',
    ),
    concept="""\
A gather among g devices brings g - 1 pieces to each. So gather activations along the short axis, and use the long one
to split what is never gathered: rows.
""",
    in_practice="""\
Real machines have such device counts, too: 6 accelerators, or 8 of which some are broken. Redistribution
then has overlaps that no single collective describes, and a general exchange moves fewer bytes than a chain of named
collectives.
""",
    sources=(SHARDING_PROPAGATION,),
)

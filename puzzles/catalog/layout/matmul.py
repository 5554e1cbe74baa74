"""Layout puzzle 0: one matmul that moves nothing, under a memory cap."""

from lib.layout.examples import one_matmul
from puzzles.catalog.papers import SHARDING_PROPAGATION

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="matmul",
    title="One matmul",
    build=lambda: one_matmul(devices=8, rows=256, inner=64, columns=128),
    annotations=1,
    memory_cap=50_000,
    target=0,
    best=0,
    statement="""\
`matmul` multiplies x of shape (256, 64) by w of shape (64, 128) on 8 devices. A sharding strategy states into how many
parts each dimension of each input is split: ((2, 1), (1, 4)) splits the rows of x into two parts and the columns of w
into four, so every device multiplies its part of x by its part of w.

Find the strategy that moves nothing and takes the least memory on each device. Memory counts a device's parts of x, of
w and of the output, at 4 bytes per element.
""",
    starter='''\
def matmul(graph: Graph) -> None:
    """One matmul: x (256, 64) times w (64, 128), on 8 devices."""
    # ----- your code -----
    # graph.shard("matmul", ((..., ...), (..., ...)))

    # ----- end of your code -----
''',
    hints=(
        "Splitting the columns of x also means splitting the rows of w, and each device then has only a partial sum.",
        "Instead, split the rows of x and the columns of w: into 8 and 1, 4 and 2, 2 and 4, or 1 and 8 parts. The "
        "fewer parts one of them has, the more devices hold copies of each part.",
        'x has twice the elements of w, so cut x more often: `graph.shard("matmul", ((4, 1), (1, 2)))`.',
    ),
    concept="""\
A matmul has three dimensions to split. Along the rows of the first factor and the columns of the second, the devices
are independent, but they hold copies of the other factor. Along the contracted dimension nothing is copied, but the
results are partial sums that have to be added up.
""",
    in_practice="""\
All tensor layouts start from this choice. Splitting rows is data parallelism; splitting columns, or the contracted
dimension, is tensor parallelism. The documentation of MindSpore (2023) explains the strategy in this puzzle's statement
device by device.
""",
    sources=(SHARDING_PROPAGATION,),
)

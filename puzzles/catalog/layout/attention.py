"""Layout puzzle 5: multi-head attention, split by sequences and by heads."""

from lib.layout.examples import attention
from puzzles.catalog.papers import GSPMD, MEGATRON

from .puzzle import LayoutPuzzle

PUZZLE = LayoutPuzzle(
    slug="attention",
    title="Attention, split by heads",
    build=attention,
    annotations=4,
    memory_cap=62_000,
    target=49_152,
    best=32_768,
    statement="""\
Multi-head attention on 4 sequences of 16 tokens, with 64 columns and 8 heads, on 8 devices. The projections `q`, `k`
and `v` are each reshaped into heads and transposed. `scores`, `softmax` and `mixed` follow; the result is transposed
and reshaped back, multiplied in `out`, and `attended` adds the input. A reshape of columns into heads keeps a split of
the columns if the number of parts divides the number of heads.

Configure four operators. Everything between the projections and `out` can run without communication.

A sum need not be complete on every device. Give `out=`, the number of parts of each dimension of the output, and the
sum is reduce-scattered instead of all-reduced. That earns the third star.
""",
    starter='''\
def attention(graph: Graph) -> None:
    """Projections q, k, v; attention on heads; output projection out."""
    # ----- your code -----
    # graph.shard("q", ((..., ..., ...), (..., ...)))

    # ----- end of your code -----
''',
    hints=(
        "Configure `q`, `k` and `v` in the same way, and split both the sequences and the columns.",
        "If propagation chooses `out`, it contracts a split dimension and pays an all-reduce. Configure "
        "`out` yourself.",
        "Configure all four in the same way: the batch in two parts, the columns of the weight in four. "
        '`for name in "q", "k", "v", "out": graph.shard(name, ((2, 1, 1), (1, 4)))`.',
        "A gather among pairs and a reduce-scatter among pairs are together cheaper than either among groups of four: "
        '`graph.shard("out", ((2, 1, 2), (2, 2)), out=(2, 2, 2))`.',
    ),
    concept="""\
Heads are independent between the projections and the output, so splitting the columns of the three projections
splits everything in between by heads. At the end you either sum the results or gather the inputs. Which is cheaper
depends on how many devices share the batch.
""",
    in_practice="""\
Megatron-LM (Shoeybi et al. 2019) splits heads exactly like this, with an all-reduce at the end. GSPMD (Xu et al. 2021)
shows the same layouts as annotations on a mesh of two axes, for models of up to a trillion parameters.
""",
    sources=(MEGATRON, GSPMD),
)

"""Layout puzzle 14: the loss of a vocabulary that four devices share."""

from lib.layout import Graph, P, mesh
from lib.layout.examples import vocabulary_loss
from puzzles.catalog.papers import GSPMD, MEGATRON

from .puzzle import LayoutPuzzle


def build() -> Graph:
    """An output head and its cross-entropy on 2x4 devices; table and labels are split by words."""
    graph = vocabulary_loss(mesh(data=2, model=4))
    ends = {"x": P("data", None), "table": P("model", None), "labels": P("data", "model"), "loss": P("data")}
    for name, layout in ends.items():
        graph.pin(name, layout)
    return graph


PUZZLE = LayoutPuzzle(
    slug="vocabulary_ends",
    title="Loss of a split vocabulary",
    build=build,
    annotations=4,
    memory_cap=30_500,
    target=4_608,
    best=3_840,
    statement="""\
An output head and its cross-entropy, operator by operator, on a mesh of 2x4 devices: 64 tokens of width 32, and 128
words. The table and the labels are pinned by words over the axis `model`, and the tokens are split over
`data`. So the logits of a token are spread over four devices.

The loss needs the largest logit of each token, the sum of the exponentials, and the logit of the right word. Gathering
the logits moves more than 100,000 bytes. Each of the three is one number for each token: reduce these numbers instead.
""",
    starter='''\
def vocabulary_ends(graph: Graph) -> None:
    """The ends are pinned; configure up to four operators."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "Start with `logits`: ((2, 1), (4, 1)) computes where its table is, and moves nothing.",
        "A maximum of parts is completed like a sum: `largest` may be split in both dimensions, and so may `total` and "
        "`chosen`.",
        '`graph.shard("largest", ((2, 4),), out=(8,))` scatters the maximum over all eight devices; do the same for '
        "the other two. Each device then computes an eighth of the loss, which is gathered at the end.",
    ),
    concept="""\
A softmax needs two numbers about its full row, the maximum and the sum. Devices can complete both with a collective
of one number for each row, whatever the length of a row. Attention in blocks uses the same idea.
""",
    in_practice="""\
Megatron-LM (2019) computes the loss of a vocabulary that is split over tensor-parallel ranks like this. With 128,000
words, the logits are the largest tensor of a training step.
""",
    sources=(MEGATRON, GSPMD),
)

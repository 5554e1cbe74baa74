"""Layout puzzle 13: attention whose input and result are split along the sequence."""

from lib.layout import Graph, P, mesh
from lib.layout.examples import add_attention
from puzzles.catalog.papers import GSPMD, SEQUENCE_PARALLELISM

from .puzzle import LayoutPuzzle


def build() -> Graph:
    """Attention on 2x4 devices with weights split by heads; its ends are split along the sequence."""
    graph = Graph(mesh=mesh(data=2, model=4))
    graph.input("x", (4, 32, 64))
    add_attention(graph, "", "x", 4, 32, 8, 64)
    for name in ("x", "attended"):
        graph.pin(name, P("data", "model", None))
    for name in ("wq", "wk", "wv"):
        graph.pin(name, P(None, "model"))
    graph.pin("wo", P("model", None))
    return graph


PUZZLE = LayoutPuzzle(
    slug="sequence_ends",
    title="Sequence parallel both ends",
    build=build,
    annotations=4,
    memory_cap=116_000,
    target=221_184,
    best=196_608,
    statement="""\
Multi-head attention with its residual, on a mesh of 2x4 devices: 4 sequences of 32 tokens, 8 heads, width 64. Sequences
are split over the axis `data`. The weights of queries, keys and values are pinned by columns, and `wo` by rows, over
the axis `model`. `x` and the result `attended` are pinned along the sequence over `model`, so that the layers around
attention compute nothing twice.

Left alone, the rule follows the split of `x` from operator to operator. A compiler that propagates annotations moves
589,824 bytes. Use tensor parallelism inside, so that each device computes complete heads.
""",
    starter='''\
def sequence_ends(graph: Graph) -> None:
    """The ends and the weights are pinned; configure up to four operators."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "Heads do not depend on each other. A device that has all tokens of two heads needs nothing from others until "
        "`wo`.",
        "Gather `x` along the sequence once: `q`, `k` and `v` share that move if they take it in the same layout, "
        "((2, 1, 1), (1, 4)).",
        'The sums of `out` are wanted along the sequence. `graph.shard("out", ((2, 1, 4), (4, 1)), out=(2, 4, 1))` '
        "reduce-scatters them there.",
    ),
    concept="""\
Sequence parallelism replaces the all-reduce of tensor parallelism by an all-gather before attention and a
reduce-scatter after it. Both together move as many bytes as the all-reduce, and what lies between layers takes a
quarter of the memory.
""",
    in_practice="""\
Megatron-LM (2022) introduced this split for layer normalization and dropout. PyTorch has it as `SequenceParallel`,
to combine with `ColwiseParallel` and `RowwiseParallel`; `code_of(plan, "torch")` writes such a plan.
""",
    sources=(SEQUENCE_PARALLELISM, GSPMD),
)

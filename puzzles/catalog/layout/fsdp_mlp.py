"""Layout puzzle 12: the ends are given as fully sharded data parallelism has them; what lies between is free."""

from lib.layout import Graph, P, mesh
from lib.layout.examples import megatron_mlp
from puzzles.catalog.papers import GSPMD, PYTORCH_FSDP

from .puzzle import LayoutPuzzle


def build() -> Graph:
    """An MLP on 2x4 devices; its input, weights and result are split by rows in eight."""
    graph = Graph(mesh=mesh(data=2, model=4))
    for name, role in (mlp := megatron_mlp(tokens=128)).sources.items():
        getattr(graph, role)(name, mlp.shapes[name])
    graph.gelu("gelu", graph.matmul("matmul1", "x", "up"))
    graph.matmul("matmul2", "gelu", "down")
    for name in ("x", "up", "down", "matmul2"):
        graph.pin(name, P(("data", "model"), None))
    return graph


PUZZLE = LayoutPuzzle(
    slug="fsdp_mlp",
    title="FSDP at both ends",
    build=build,
    annotations=1,
    memory_cap=60_000,
    target=425_984,
    best=425_984,
    least=409_600,
    statement="""\
Two matmuls with a gelu between them, on a mesh of 2x4 devices: `x` is 128 by 64, `up` 64 by 256, `down` 256 by 64. The
layouts of `x`, of both weights and of the result are pinned, as a compiler gets them from `in_shardings` and
`out_shardings`: each is split by rows over all eight devices, as fully sharded data parallelism stores them.

Fully sharded data parallelism gathers both weights on every device: 917,504 bytes. With these ends, a compiler that
propagates annotations does the same. You decide what happens between the ends. Move less than half as many bytes.
""",
    starter='''\
def fsdp_mlp(graph: Graph) -> None:
    """The ends are pinned; configure one operator."""
    # ----- your code -----
    # graph.shard("...", (...))

    # ----- end of your code -----
''',
    hints=(
        "A weight has 65,536 bytes, and so do all hidden activations of 64 rows. Compare what it takes to gather each.",
        "Split the tokens over the axis of two, and the hidden dimension over the axis of four. A device then needs a "
        "quarter of each weight.",
        "The result is pinned to rows in eight, so the sums of `matmul2` are reduce-scattered. "
        '`graph.shard("matmul1", ((2, 1), (1, 4)))` is enough.',
    ),
    concept="""\
How tensors are stored does not decide how to compute with them. Fully sharded weights may be used with tensor
parallelism inside a group: a device gathers only some columns and rows, and moves activations instead of the rest.
Which is cheaper depends on the number of tokens.
""",
    in_practice="""\
Hybrid sharding combines both: PyTorch's FSDP2 and tensor parallelism share one two-dimensional device mesh. A compiler
such as Shardy propagates annotations one operator at a time, and gathers the full weights here.
""",
    sources=(PYTORCH_FSDP, GSPMD),
)

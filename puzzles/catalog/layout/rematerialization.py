"""Layout puzzle 11: a move that a compiler makes by gathering everything, and that needs an eighth of the bytes."""

from lib.layout import Graph, mesh
from puzzles.catalog.papers import FULL_REMATERIALIZATION, GSPMD

from .puzzle import LayoutPuzzle


def resharded() -> Graph:
    """The tensors and the mesh of the issue; the sum is normalized between the two layouts."""
    graph = Graph(mesh=mesh(x=4, y=2))
    for name in "abc":
        graph.input(name, (16, 16, 16))
    graph.softmax("p", graph.add("d", "a", "b"), axis=2)
    graph.add("result", "p", "c")
    return graph


PUZZLE = LayoutPuzzle(
    slug="rematerialization",
    title="Full rematerialization",
    build=resharded,
    given={"d": ((2, 1, 4), (2, 1, 4)), "result": ((1, 8, 1), (1, 8, 1))},
    annotations=1,
    memory_cap=16_000,
    target=14_336,
    best=14_336,
    statement="""\
Tensors of (16, 16, 16) on 8 devices, in a mesh of x=4 and y=2. `a` and `b` are split over y in dimension 0 and over x
in dimension 2, and so is their sum `d`. `c` and the result are split over all devices in dimension 1. In between, a
softmax along dimension 2 makes `p` from `d`.

XLA warned about this move: "[spmd] Involuntary full rematerialization. The compiler was not able to go from sharding
{devices=[2,1,4]<=[4,2]T(1,0)} to {devices=[1,8,1]<=[8]} without doing a full rematerialization of the tensor." It
gathers the full tensor on every device, 114,688 bytes, and each device then keeps its eighth. Two all-to-alls, one
axis after the other, move 20,480 bytes. The rule, without your help, moves 57,344.

Configure `p`. A full copy of `d` or `p` does not fit into memory.
""",
    starter='''\
def rematerialization(graph: Graph) -> None:
    """d is ((2, 1, 4), (2, 1, 4)), result is ((1, 8, 1), (1, 8, 1)); p is a softmax along dimension 2."""
    # ----- your code -----
    # graph.shard("p", ((..., ..., ...),))

    # ----- end of your code -----
''',
    hints=(
        "The softmax needs dimension 2 unsplit, so `d` has to move before it. Whether anything moves after it is your "
        "choice.",
        "With ((2, 4, 1)), the axis x moves from dimension 2 to dimension 1 in one all-to-all, and y follows in "
        "another. Everything that moves in the second one has just moved in the first, or could have gone there "
        "directly.",
        "Each device already holds an eighth of what it needs at the end. Any plan must send it the other seven "
        "eighths, 1,792 bytes. The target is eight times as much, for eight devices.",
        'Ask for the last layout at once: `graph.shard("p", ((1, 8, 1),))`.',
    ),
    concept="""\
A move between two layouts costs what each device needs and does not hold. Here every device sends each other one 64
elements: one all-to-all among all eight. A compiler without a pattern for such a move falls back to a general
way: it replicates the tensor and splits it again, which moves eight times as much and needs room for a full copy.
""",
    in_practice="""\
XLA's partitioner prints this warning when none of its patterns fits; users of JAX reported this case in 2024, without
the softmax. The message advises to "enrich the sharding annotations": for instance with a constraint on a layout in
between that differs from each side in one axis, here PartitionSpec("y", "x", None). GSPMD (Xu et al. 2021) describes
the patterns: all-to-all, permutation, all-gather and slice.
""",
    sources=(FULL_REMATERIALIZATION, GSPMD),
)

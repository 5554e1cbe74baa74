"""Run by mpiexec with four processes: plans on MPI, their numbers and their bytes compared with what is predicted."""

import sys

import numpy as np

from lib.layout import GraphPlan, cut, mesh, mesh_split, plan, propagate, redistribute
from lib.layout.examples import feed_forward
from tests.support.layout_strategies import numbers, values


def compare(found: GraphPlan) -> None:
    given = {name: value.astype(np.float32) for name, value in values(found.graph).items()}
    done, alone = found.on_engine(given, on="mpi"), found.graph.run(given)
    for name, tensor in alone.items():
        np.testing.assert_array_equal(done.value(name), tensor)
    assert done.sent == tuple(found.sent)
    assert done.peaks == tuple(found.timeline.peaks)


def main() -> None:
    graph = feed_forward(devices=4)
    graph.shard("matmul1", ((2, 1), (1, 2)))
    compare(propagate(graph))  # an all-reduce
    compare(plan(graph, tensor_caps={"weight2": 4096}))  # an all-gather and a reduce-scatter
    uneven = feed_forward(devices=4, batch=10, width=9, hidden=7)
    uneven.uneven = True
    uneven.shard("matmul1", ((4, 1), (1, 1)))
    compare(plan(uneven, tensor_caps={"weight2": 100}))  # padding in all-gathers and reduce-scatters
    grid, tensor = mesh(x=2, y=2), numbers((8, 8)).astype(np.float32)
    for source, target in (("x", "y"), (-1, "x")), (("x", "y"), ("y", "x")), ((("x", "y"), -1), (-1, ("x", "y"))):
        moves = redistribute(mesh_split((8, 8), grid, source), mesh_split((8, 8), grid, target))
        done = moves.on_engine(cut(tensor, moves.source), on="mpi")
        np.testing.assert_array_equal(done.value("tensor"), tensor)
        assert done.sent == tuple(moves.sent)
    sys.stdout.write("6 plans as predicted\n")


if __name__ == "__main__":
    main()

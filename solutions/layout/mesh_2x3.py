"""Two by three: rows split along the long axis; sums are scattered along the short one."""

from lib.layout import Graph


def mesh_2x3(graph: Graph) -> None:
    graph.shard("matmul1", ((3, 1), (1, 2)))
    graph.shard("matmul2", ((3, 2), (2, 1)), out=(6, 1))

"""Two by three: activations are gathered along the short axis, rows split along the long one."""

from lib.layout import Graph


def mesh_2x3(graph: Graph) -> None:
    for name in ("matmul1", "matmul2"):
        graph.shard(name, ((3, 1), (1, 2)))

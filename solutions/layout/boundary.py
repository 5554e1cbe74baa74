"""Where the parallelism changes: one operator configured on each side of the mean, and little to pay between them."""

from lib.layout import Graph


def boundary(graph: Graph) -> None:
    graph.shard("front", ((8, 1, 1), (8, 1, 1)))
    graph.shard("matmul3", ((4, 1), (1, 2)))

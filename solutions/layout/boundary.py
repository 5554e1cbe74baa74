"""Boundary: one operator configured on each side of the mean, where the parallelism changes."""

from lib.layout import Graph


def boundary(graph: Graph) -> None:
    graph.shard("front", ((8, 1, 1), (8, 1, 1)))
    graph.shard("matmul3", ((4, 1), (1, 2)))

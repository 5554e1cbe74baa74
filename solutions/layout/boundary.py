"""Boundary: the front by rows, the tail's columns in two, its sums scattered by rows."""

from lib.layout import Graph


def boundary(graph: Graph) -> None:
    graph.shard("front", ((8, 1, 1), (8, 1, 1)))
    graph.shard("matmul3", ((4, 1), (1, 2)))
    graph.shard("matmul4", ((4, 2), (2, 1)), out=(8, 1))

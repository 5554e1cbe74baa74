"""Boundary: the tail's columns in two, its sums scattered by rows; from there, rows over all devices spread."""

from lib.layout import Graph


def boundary(graph: Graph) -> None:
    graph.shard("matmul4", ((4, 2), (2, 1)), out=(8, 1))

"""One matmul: both factors are split, and the larger one more often."""

from lib.layout import Graph


def matmul(graph: Graph) -> None:
    graph.shard("matmul", ((4, 1), (1, 2)))

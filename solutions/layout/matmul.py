"""One matmul: both factors are split, the larger one into more pieces."""

from lib.layout import Graph


def matmul(graph: Graph) -> None:
    graph.shard("matmul", ((4, 1), (1, 2)))

"""One matmul: cut the larger factor more often, and both."""

from lib.layout import Graph


def matmul(graph: Graph) -> None:
    graph.shard("matmul", ((4, 1), (1, 2)))

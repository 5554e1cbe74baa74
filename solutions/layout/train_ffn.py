"""A training step of the feed-forward network: rows in four, columns in two, sums scattered."""

from lib.layout import Graph


def train_ffn(graph: Graph) -> None:
    graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))
    graph.shard("add2.grad", ((4, 2), (4, 2)))
    graph.shard("weight2.grad", ((4, 1), (4, 2)), out=(2, 4))

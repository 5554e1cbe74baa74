"""A layer trained with Adam: tokens in four, columns in two, down's optimizer on all eight devices."""

from lib.layout import Graph


def train_layer(graph: Graph) -> None:
    graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))
    graph.shard("residual.grad", ((4, 2), (4, 2)))
    graph.shard("down.grad", ((4, 1), (4, 2)), out=(2, 4))
    graph.shard("down.update", ((2, 4), (1, 2, 4)))

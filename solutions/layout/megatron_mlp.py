"""The Megatron MLP: tokens over two devices, hidden columns over four."""

from lib.layout import Graph


def megatron_mlp(graph: Graph) -> None:
    graph.shard("matmul1", ((2, 1), (1, 4)))

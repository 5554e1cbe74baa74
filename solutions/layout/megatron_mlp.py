"""The Megatron MLP: tokens over two devices, hidden columns over four; the sums are scattered over all eight."""

from lib.layout import Graph


def megatron_mlp(graph: Graph) -> None:
    graph.shard("matmul1", ((2, 1), (1, 4)))
    graph.shard("matmul2", ((2, 4), (4, 1)), out=(8, 1))

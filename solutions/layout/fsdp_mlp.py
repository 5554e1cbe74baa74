"""FSDP at both ends: tokens in two, the hidden dimension in four; a device gathers a quarter of each weight."""

from lib.layout import Graph


def fsdp_mlp(graph: Graph) -> None:
    graph.shard("matmul1", ((2, 1), (1, 4)))

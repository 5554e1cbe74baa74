"""Attention between sequence-parallel ends: heads in four, one all-gather and one reduce-scatter."""

from lib.layout import Graph


def sequence_ends(graph: Graph) -> None:
    for name in ("q", "k", "v"):
        graph.shard(name, ((2, 1, 1), (1, 4)))
    graph.shard("out", ((2, 1, 4), (4, 1)), out=(2, 4, 1))

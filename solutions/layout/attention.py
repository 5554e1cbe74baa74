"""Attention: batch in two, heads in four; the output gathers in pairs and scatters its sums in pairs."""

from lib.layout import Graph


def attention(graph: Graph) -> None:
    for name in ("q", "k", "v"):
        graph.shard(name, ((2, 1, 1), (1, 4)))
    graph.shard("out", ((2, 1, 2), (2, 2)), out=(2, 2, 2))

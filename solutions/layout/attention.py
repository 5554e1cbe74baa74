"""Attention: sequences over two devices, heads over four; inputs are gathered at the end instead of summing results."""

from lib.layout import Graph


def attention(graph: Graph) -> None:
    for name in ("q", "k", "v", "out"):
        graph.shard(name, ((2, 1, 1), (1, 4)))

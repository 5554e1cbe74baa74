"""Attention: batch over two, heads over four, and gathered inputs instead of summed results at the end."""

from lib.layout import Graph


def attention(graph: Graph) -> None:
    for name in ("q", "k", "v", "out"):
        graph.shard(name, ((2, 1, 1), (1, 4)))

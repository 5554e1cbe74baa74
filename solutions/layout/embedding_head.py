"""Embedding and head: the table by columns, then tokens over all devices; the scores never move."""

from lib.layout import Graph


def embedding_head(graph: Graph) -> None:
    graph.shard("embed", ((1, 8), (1, 1)))
    graph.shard("hidden", ((1, 8, 1), (1, 1)))
    graph.shard("head", ((1, 2, 1), (4, 1)))

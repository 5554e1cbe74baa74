"""Embedding and head: the table by columns, the tokens over all devices between, the scores never moved."""

from lib.layout import Graph


def embedding_head(graph: Graph) -> None:
    graph.shard("embed", ((1, 8), (1, 1)))
    graph.shard("hidden", ((1, 8, 1), (1, 1)))
    graph.shard("head", ((1, 2, 1), (4, 1)))

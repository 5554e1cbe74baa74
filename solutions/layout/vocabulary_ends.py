"""The loss of a split vocabulary: three reductions of one number for each token, scattered over all devices."""

from lib.layout import Graph


def vocabulary_ends(graph: Graph) -> None:
    graph.shard("logits", ((2, 1), (4, 1)))
    for name in ("largest", "total", "chosen"):
        graph.shard(name, ((2, 4),), out=(8,))

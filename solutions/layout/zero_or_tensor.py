"""ZeRO: tokens in eight, gradients scattered, the optimizer in eighths, and one weight stored in eighths."""

from lib.layout import Graph


def zero_or_tensor(graph: Graph) -> None:
    for matmul in ("matmul1", "matmul2"):
        graph.shard(matmul, ((8, 1), (1, 1)))
    for weight in ("up", "down"):
        graph.shard(f"{weight}.grad", ((8, 1), (8, 1)), out=(1, 8))
    graph.shard("up.new", ((1, 8),))
    graph.shard("down.update", ((1, 8), (1, 1, 8)))

# zero_or_tensor: over_target
# figures: memory=1622016
# misses: memory
def zero_or_tensor(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))
    graph.shard("matmul2", ((8, 1), (1, 1)))
    graph.shard("up.grad", ((8, 1), (8, 1)), out=(1, 8))
    graph.shard("down.grad", ((8, 1), (8, 1)), out=(1, 8))
    graph.shard("up.update", ((1, 8), (1, 1, 8)))
    graph.shard("down.update", ((1, 8), (1, 1, 8)))

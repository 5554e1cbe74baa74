# zero_or_tensor: over_target
# figures: memory=1966080
# misses: memory
def zero_or_tensor(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))
    graph.shard("matmul2", ((8, 1), (1, 1)))

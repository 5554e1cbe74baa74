# zero_or_tensor: over_target
# facts: 5,767,168
# misses: bytes, memory
def zero_or_tensor(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

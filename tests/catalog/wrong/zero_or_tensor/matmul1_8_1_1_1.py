# zero_or_tensor: over_target
# says: bytes move, the target is 5,767,168
def zero_or_tensor(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

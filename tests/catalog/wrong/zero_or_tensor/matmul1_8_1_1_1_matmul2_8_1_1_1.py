# zero_or_tensor: over_target
# says: each device holds 1,966,080 bytes, the cap is 1,600,000
def zero_or_tensor(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))
    graph.shard("matmul2", ((8, 1), (1, 1)))

# ffn: over_target
# says: 98,304 bytes move, the target is 12,288: matmul2 pays 98,304 bytes (all-reduce)
def ffn(graph):
    graph.shard("relu", ((2, 4),))

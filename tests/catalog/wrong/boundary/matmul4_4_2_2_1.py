# boundary: over_target
# says: 131,072 bytes move, the target is 98,304: mean pays 65,536 bytes (all-reduce)
def boundary(graph):
    graph.shard("matmul4", ((4, 2), (2, 1)))

# boundary: over_target
# figures: bytes=131072
# misses: bytes, memory
def boundary(graph):
    graph.shard("matmul4", ((4, 2), (2, 1)))

# boundary: over_target
# figures: memory=1290240
# misses: memory
def boundary(graph):
    graph.shard("front", ((8, 1, 1), (8, 1, 1)))

# rematerialization: over_target
# figures: bytes=20480; memory=12288
# facts: 8,192
# misses: bytes
def rematerialization(graph):
    graph.shard("p", ((2, 4, 1),))

# rematerialization: over_target
# figures: bytes=57344
# facts: 49,152
# misses: bytes, memory
def rematerialization(graph):
    graph.shard("p", ((2, 1, 1),))

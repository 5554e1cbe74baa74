# rematerialization: over_target
# figures: bytes=114688; memory=26624
# misses: bytes, memory
def rematerialization(graph):
    graph.shard("p", ((1, 1, 1),))

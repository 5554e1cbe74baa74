# ffn: over_target
# figures: bytes=98304
# misses: bytes
def ffn(graph):
    graph.shard("relu", ((2, 4),))

# rematerialization: over_target
# says: 57,344 bytes move
# says: d -> p pays 49,152 bytes (all-gather)
def rematerialization(graph):
    graph.shard("p", ((2, 1, 1),))

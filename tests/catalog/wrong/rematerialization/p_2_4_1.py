# rematerialization: over_target
# says: 20,480 bytes move
# says: d -> p pays 12,288 bytes (all-to-all)
# says: p -> result pays 8,192 bytes (all-to-all)
def rematerialization(graph):
    graph.shard("p", ((2, 4, 1),))

# rematerialization: over_target
# says: 114,688 bytes move, the target is 14,336: d -> p pays 114,688 bytes (all-gather)
# says: each device holds 26,624 bytes, the cap is 16,000
def rematerialization(graph):
    graph.shard("p", ((1, 1, 1),))

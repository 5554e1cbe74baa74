# boundary: over_target
# says: each device holds 1,290,240 bytes, the cap is 1,164,000
def boundary(graph):
    graph.shard("front", ((8, 1, 1), (8, 1, 1)))

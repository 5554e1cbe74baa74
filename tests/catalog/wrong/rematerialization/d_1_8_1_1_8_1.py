# rematerialization: annotations
# says: 'd' is given as
# says: configure other
def rematerialization(graph):
    graph.shard("d", ((1, 8, 1), (1, 8, 1)))

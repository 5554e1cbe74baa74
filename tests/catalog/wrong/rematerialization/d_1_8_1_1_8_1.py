# rematerialization: annotations
# facts: 'd'
def rematerialization(graph):
    graph.shard("d", ((1, 8, 1), (1, 8, 1)))

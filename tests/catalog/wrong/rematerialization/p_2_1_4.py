# rematerialization: layout
# facts: dimension 2; 'd'; size 16
def rematerialization(graph):
    graph.shard("p", ((2, 1, 4),))

# ffn: annotations
# says: 2 operators are configured, relu, add1; this puzzle allows 1
def ffn(graph):
    graph.shard("relu", ((8, 1),))
    graph.shard("add1", ((8, 1), (1,)))

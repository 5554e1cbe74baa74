# ffn: annotations
# facts: relu, add1
def ffn(graph):
    graph.shard("relu", ((8, 1),))
    graph.shard("add1", ((8, 1), (1,)))

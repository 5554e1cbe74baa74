# ffn: layout
# facts: (16,1)
def ffn(graph):
    graph.shard("relu", ((16, 1),))

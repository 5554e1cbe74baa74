# ffn: layout
# says: relu: the strategy ((16,1)) makes 16 parts, which does not divide 8 devices
def ffn(graph):
    graph.shard("relu", ((16, 1),))

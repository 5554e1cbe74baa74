# matmul: layout
# facts: graph.shard(name, strategy)
def matmul(graph):
    pass  # tried

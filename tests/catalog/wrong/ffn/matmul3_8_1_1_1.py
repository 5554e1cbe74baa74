# ffn: layout
# facts: 'matmul3'
def ffn(graph):
    graph.shard("matmul3", ((8, 1), (1, 1)))

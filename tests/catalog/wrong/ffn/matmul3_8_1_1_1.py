# ffn: layout
# says: there is no operator named 'matmul3' in this graph; did you mean 'matmul
def ffn(graph):
    graph.shard("matmul3", ((8, 1), (1, 1)))

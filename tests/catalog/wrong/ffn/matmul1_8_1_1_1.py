# ffn: annotations
# says: 'matmul1' is given as ((2, 1), (1, 4)); configure other operators
def ffn(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

# ffn: annotations
# facts: 'matmul1'; (2, 1); (1, 4)
def ffn(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

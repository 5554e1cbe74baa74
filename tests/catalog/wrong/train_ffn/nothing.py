# train_ffn: layout
# facts: (64, 64); (4, 4)
def train_ffn(graph):
    graph.shard("weight1.grad", ((4, 2), (4, 1)), out=(4, 4))

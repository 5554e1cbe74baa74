# train_ffn: layout
# says: no operator named 'weight1.gard'
# says: did you mean 'weight1.grad'?
def train_ffn(graph):
    graph.shard("weight1.gard", ((4, 2), (4, 1)))

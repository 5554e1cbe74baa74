# train_ffn: layout
# facts: 'weight1.gard'; 'weight1.grad'
def train_ffn(graph):
    graph.shard("weight1.gard", ((4, 2), (4, 1)))

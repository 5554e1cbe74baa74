# train_ffn: layout
# says: cannot leave the output of shape (64, 64) in parts (4, 4); it can leave
def train_ffn(graph):
    graph.shard("weight1.grad", ((4, 2), (4, 1)), out=(4, 4))

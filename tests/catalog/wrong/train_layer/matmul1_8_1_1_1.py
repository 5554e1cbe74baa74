# train_layer: over_target
# figures: bytes=1835008; memory=884736
# misses: bytes, memory
def train_layer(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

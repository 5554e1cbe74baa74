# train_layer: over_target
# says: 1,835,008 bytes move, the target is 1,769,472
# says: each device holds 884,736 bytes
def train_layer(graph):
    graph.shard("matmul1", ((8, 1), (1, 1)))

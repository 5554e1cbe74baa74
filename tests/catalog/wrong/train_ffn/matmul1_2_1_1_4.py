# train_ffn: over_target
# says: 1,074,176 bytes move, the target is 412,672
# says: each device holds 73,984 bytes
def train_ffn(graph):
    graph.shard("matmul1", ((2, 1), (1, 4)))

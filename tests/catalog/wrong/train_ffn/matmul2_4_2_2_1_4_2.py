# train_ffn: over_target
# says: each device holds 74,240 bytes, the cap is 68,500
# says: 'weight1' takes 8,192
def train_ffn(graph):
    graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))

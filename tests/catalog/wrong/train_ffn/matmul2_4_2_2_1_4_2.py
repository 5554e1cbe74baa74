# train_ffn: over_target
# figures: memory=74240
# facts: 'weight1'; 8,192
# misses: bytes, memory
def train_ffn(graph):
    graph.shard("matmul2", ((4, 2), (2, 1)), out=(4, 2))

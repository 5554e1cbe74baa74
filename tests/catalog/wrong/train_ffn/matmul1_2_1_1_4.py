# train_ffn: over_target
# figures: bytes=1074176; memory=73984
# misses: bytes, memory
def train_ffn(graph):
    graph.shard("matmul1", ((2, 1), (1, 4)))

# train_layer: layout
# says: dimension 0 of 'up.state', of size 2,
# says: cannot be split
def train_layer(graph):
    graph.shard("up.state.new", ((2, 4, 1), (4, 1)))

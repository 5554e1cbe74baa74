# train_layer: layout
# facts: dimension 0; 'up.state'; size 2
def train_layer(graph):
    graph.shard("up.state.new", ((2, 4, 1), (4, 1)))

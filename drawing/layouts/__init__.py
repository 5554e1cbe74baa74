"""Pictures of layouts: a tensor's pieces, a redistribution, a graph with its plan."""

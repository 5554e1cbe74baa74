"""Programs: graphs of operators, their sharding strategies, and how they are traced from numpy."""

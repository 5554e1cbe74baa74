"""Planning: sharding propagation, the exact planner, and completion of annotations."""

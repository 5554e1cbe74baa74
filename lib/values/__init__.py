"""Values that a rank holds: five frozen kinds, and the algebra of their shards and batches."""

"""Pictures of values in their network."""

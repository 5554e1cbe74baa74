"""The chapter on memory: what a rank keeps that others keep too, could compute again, or could put elsewhere."""

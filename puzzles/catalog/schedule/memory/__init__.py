"""The chapter on memory: what a rank keeps that others also keep, could recompute, or could store elsewhere."""

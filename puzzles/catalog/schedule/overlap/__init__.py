"""The chapter on overlap: communication that overlaps with computation, and when to start it."""

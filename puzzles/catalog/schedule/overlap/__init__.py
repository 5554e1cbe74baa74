"""The chapter on overlap: communication that runs beside computation, and when to start it."""

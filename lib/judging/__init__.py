"""The referee: recomputes a trace, measures time and memory, and notes bad habits."""

"""The referee: recomputes a trace, measures time and memory, and remarks on habits."""

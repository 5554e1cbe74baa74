"""Plans as code for other frameworks, and as JSON."""

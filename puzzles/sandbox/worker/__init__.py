"""Runs inside the sandbox, next to hostile code: a server, its supervisors, and the workers that run submissions."""

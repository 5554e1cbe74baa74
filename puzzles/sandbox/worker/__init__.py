"""Runs inside the sandbox, beside hostile code: a server, its supervisors, and the workers that run submissions."""

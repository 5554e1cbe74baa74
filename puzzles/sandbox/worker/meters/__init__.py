"""Checks on an engine class while it runs: its isolation, the engine's integrity, and what no meter counts."""

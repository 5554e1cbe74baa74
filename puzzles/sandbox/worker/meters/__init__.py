"""Checks beside an engine class: its isolation, the engine's integrity, and what no meter counts."""

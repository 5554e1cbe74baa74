"""The only device: what a ShardedEngine is on when nobody launched it."""

from __future__ import annotations

from .inprocess import InProcessPort, World


def alone() -> InProcessPort:
    """A device among one: collectives return at once."""
    return World(1).ports[0]

"""The publications as names of a module, for the layouts, which are not data yet."""

from __future__ import annotations

from .paper import Paper
from .paper import papers as all_papers


def __getattr__(name: str) -> Paper:
    if name in all_papers():
        return all_papers()[name]
    raise AttributeError(name)

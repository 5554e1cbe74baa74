"""The publications as names of a module, for the layouts, which are not data yet."""

from __future__ import annotations

from .content import content
from .paper import Paper, paper


def __getattr__(name: str) -> Paper:
    if name in content()["papers.toml"]:
        return paper(name)
    raise AttributeError(name)

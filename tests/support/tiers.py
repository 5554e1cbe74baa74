"""Tiers for tests: a certain one, which may not work on this machine, or any that does."""

from __future__ import annotations

import os

import pytest

from puzzles.commands.grade import grade
from puzzles.sandbox.tiers import IsolationTier, UnknownTierError, select_tier


def require_tier(name: str) -> IsolationTier:
    """The tier of this name; skips the test where it does not work."""
    if os.name != "posix":
        pytest.skip("hostile code is ended by POSIX means")
    try:
        return select_tier(name)
    except UnknownTierError as why:
        pytest.skip(str(why))


@pytest.fixture
def any_tier(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `puzzles grade` take a folder without being asked to trust it, where there is no sandbox."""
    if not select_tier().is_sandbox:
        (trust,) = (option for option in grade.params if option.name == "trust")
        monkeypatch.setattr(trust, "default", True)

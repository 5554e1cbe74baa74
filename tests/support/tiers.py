"""Tiers for tests: those that work on this machine, and a machine on which bubblewrap works or does not."""

from __future__ import annotations

import os

import pytest

from puzzles.sandbox.tiers import Tier, UnknownTierError, best


def require_tier(name: str) -> Tier:
    """The tier of this name; skips the test where it does not work."""
    if os.name != "posix":
        pytest.skip("hostile code is ended by POSIX means")
    try:
        return best(name)
    except UnknownTierError as why:
        pytest.skip(str(why))

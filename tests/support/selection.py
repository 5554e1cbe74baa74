"""Marks most cases of an exhaustive suite slow, so that `make test` runs some of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from puzzles.sandbox.tiers import best

TIERS = ("bubblewrap", "process")


def first_of_each_kind(cases: Iterable[Any], kind: Callable[[Any], Any]) -> list[Any]:
    """The cases, each a tuple of arguments, as parameters: of every kind all but the first are slow."""
    seen = set()
    found = []
    for case in cases:
        found.append(pytest.param(*case, marks=[pytest.mark.slow] if kind(case) in seen else []))
        seen.add(kind(case))
    return found


def in_every_tier(*kinds: Iterable[str]) -> pytest.MarkDecorator:
    """Parametrizes a test with `name` and with the tier that the fixture `here` makes of a name.

    In the strictest tier that works here every case is run; in the other one the first of each kind, the rest is slow.
    """
    cases = [(tier, name, number) for number, names in enumerate(kinds) for name in names for tier in TIERS]
    chosen = first_of_each_kind(cases, lambda case: case if case[0] == best().name else (case[0], case[2]))
    found = [pytest.param(*one.values[:2], marks=one.marks) for one in chosen]
    return pytest.mark.parametrize(("here", "name"), found, indirect=["here"])

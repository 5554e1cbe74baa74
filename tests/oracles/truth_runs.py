"""Runs whose figures are compared with published ones, and what such a comparison consists of."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType
from typing import Any, NamedTuple

from lib import Costs, Report, Setting, Trace, referee
from tests.support import finished


class Claim(NamedTuple):
    """A published figure. `published` and `ours` take the same sizes; `shown` are those on the page, `quick` those of
    the fast tests, `sets` all that are tried."""

    what: str
    formula: str
    published: Callable[..., Any]
    ours: Callable[..., Any]
    shown: tuple[Any, ...]
    quick: list[tuple[Any, ...]]
    sets: list[tuple[Any, ...]]
    letters: str = "pmv"
    """What the sizes are, if they are numbers."""


def costs_of(f: int, i: int, w: int) -> Costs:
    """F, I and W in whole ticks, all else for nothing."""
    ticks = {"forward": f, "backward": i + w, "backward_input": i, "backward_weight": w}
    free = dict.fromkeys(("loss", "update", "pass_to", "receive"), 0)
    return Costs("formula", ticks=MappingProxyType({**ticks, **free}), unit=1, gradient=1)


def judged(schedule: Any, size: tuple[int, int, int], setting: Setting) -> tuple[Trace, Report]:
    """A run that the referee finds correct."""
    outcome = finished(schedule, *size, setting=setting)
    report = referee(outcome.trace)
    assert report.error is None, report.error
    return outcome.trace, report

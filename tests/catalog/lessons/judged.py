"""What a schedule's report says about the targets of its puzzle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import Goal, Model, Report, referee, run
from puzzles.catalog.schedule import CLASSICS, PUZZLES

MODERN = [slug for slug in PUZZLES if slug not in CLASSICS.slugs]
"""Puzzles of which every target decides the pass."""


def judged(schedule: Callable[[Model], Any], goal: Goal) -> Report:
    """The report on a schedule that is correct."""
    outcome = run(schedule, *goal.size, setting=goal.setting)
    assert outcome.error is None
    report = referee(outcome.trace, goal)
    assert report.error is None
    return report


def missed(report: Report) -> set[str]:
    """The targets that a report misses, as the tables of skips name them; empty with three stars.

    A peak that is over the target anyway is "memory", and in steady state only if the step cannot be repeated, too.
    """
    goal = report.goal
    assert goal is not None
    met = {
        "time": report.meets_time,
        "memory": report.meets_memory,
        "traffic": report.meets_traffic,
        "drift": report.meets_drift,
        "host": report.meets_host,
        "steady": report.is_steady or not (report.unrepeatable or report.meets_memory),
    }
    over = {name for name, is_met in met.items() if not is_met}
    return over or ({"record"} if report.stars < 3 else set())

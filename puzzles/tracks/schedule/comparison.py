"""Compares a schedule that passed with the reference solution, call by call."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from lib import Report, Trace, referee, run, trace_from_json
from lib.trace import TIMED
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle


def differences(puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
    """Sentences on the calls and figures in which the reference differs; none where it is not installed."""
    known = _reference(puzzle.slug)
    if known is None:
        return
    theirs, report = known
    mine = _counts(trace_from_json(kept))
    differing = [
        f"{name} {theirs[name]} times (you: {mine[name]})"
        for name in sorted(mine | theirs)
        if mine[name] != theirs[name]
    ]
    same = (report.timesteps, report.peak.memory) == (figures.get("timesteps"), figures.get("peak_memory"))
    if differing:
        yield f"The reference calls {', '.join(differing)}, in all ranks together."
    elif same:
        yield "The reference does the same, call by call."
    if not same:
        yield f"It takes {report.timesteps:g} timesteps and {report.peak.memory:,} elements."


@cache
def _reference(slug: str) -> tuple[Counter[str], Report] | None:
    """Calls of the reference solution, and its report; None where it is not installed."""
    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    trace = run(solution, *PUZZLES[slug].goal.size).trace
    return _counts(trace), referee(trace)


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")

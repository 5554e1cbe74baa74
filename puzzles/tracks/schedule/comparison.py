"""Describes a schedule that passed: its kind, and how its calls differ from the reference solution's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import import_module

from lib import Report, Trace, referee, run, trace_from_json
from lib.game.goal import figures_text
from lib.recognition import Recognition, recognize
from lib.trace.ops import TIMED
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule_papers import with_papers

from .possible import above_possible
from .standing import figures_of


def kind(puzzle: SchedulePuzzle, kept: str) -> str:
    """A sentence on what the schedule is; empty if it has no name, or its family has been named where it was compared
    with records (`standing`)."""
    found = recognize(trace_from_json(kept))
    return "" if found is None else _kind(puzzle, found)


def _kind(puzzle: SchedulePuzzle, found: Recognition) -> str:
    if found.family == puzzle.goal.family:
        return f"This is {with_papers(found)}."
    return f"More exactly, it is {with_papers(found)}." if found.text != found.family else ""


def comparison(puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
    """Sentences on what the schedule is, on how far it is from what is possible, and on what the reference does
    differently, where it is installed."""
    trace = trace_from_json(kept)
    found = recognize(trace)
    if found is not None:
        yield from filter(None, [_kind(puzzle, found)])
        yield from above_possible(trace, found, figures, puzzle.goal.records)
    known = _reference(puzzle.slug)
    if known is None:
        return
    theirs, report = known
    mine = _counts(trace)
    differing = [
        f"{name} {theirs[name]} times (you: {mine[name]})"
        for name in sorted(mine | theirs)
        if mine[name] != theirs[name]
    ]
    sent = report.traffic if "traffic" in figures else None
    same = (report.timesteps, report.peak.memory, sent) == figures_of(figures)
    if differing:
        yield f"The reference calls {', '.join(differing)}, counted over all ranks."
    elif same:
        yield "The reference makes the same calls."
    if not same:
        yield f"The reference takes {figures_text(report.timesteps, report.peak.memory, sent, puzzle.goal.time_words)}."


@cache
def _reference(slug: str) -> tuple[Counter[str], Report] | None:
    """Calls of the reference solution, and its report; None where it is not installed."""
    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    goal = PUZZLES[slug].goal
    trace = run(solution, *goal.size, setting=goal.setting).trace
    return _counts(trace), referee(trace)


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")

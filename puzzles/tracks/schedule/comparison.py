"""Describes a schedule that passed: its kind, and how its calls differ from the reference solution's."""

from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib import import_module
from typing import NamedTuple

from lib import Report, Trace, referee, run, trace_from_json
from lib.game.goal import figures_text
from lib.recognition import recognize
from lib.trace.ops import TIMED
from puzzles.catalog.schedule import PUZZLES, SchedulePuzzle
from puzzles.catalog.schedule_papers import with_papers
from puzzles.tracks.later import as_svg

from .pictures import is_plausible
from .possible import above_possible
from .standing import figures_of


def comparison(puzzle: SchedulePuzzle, figures: Mapping[str, float], kept: str) -> Iterator[str]:
    """Sentences on how far the schedule is from what is possible, and on what the reference does differently, where it
    is installed."""
    if not kept:
        return
    trace = trace_from_json(kept)
    found = recognize(trace)
    if found is not None:
        yield from above_possible(trace, found, figures, puzzle.goal.records, puzzle.goal.time_limit)
    known = _reference(puzzle.slug)
    if known is None:
        return
    theirs, report = known.calls, known.report
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
        taken = figures_text(report.timesteps, report.peak.memory, sent, report.costs.time_words)
        yield f"The reference takes {taken}."


def recognized(puzzle: SchedulePuzzle, kept: str) -> str:
    """What the schedule is called, with its papers; empty if it has no name, or if that is only its family, which
    `standing` names where it is not the puzzle's own."""
    found = recognize(trace_from_json(kept)) if kept else None
    if found is None or (found.family != puzzle.goal.family and found.text == found.family):
        return ""
    return with_papers(found)


def beside_reference(puzzle: SchedulePuzzle, kept: str, colour: str = "layer") -> str:
    """A kept run above the reference's as SVG; empty where the reference or drawing is not installed."""
    known = _reference(puzzle.slug) if kept else None
    if known is None or not is_plausible(trace := trace_from_json(kept)):
        return ""
    return as_svg("drawing:draw_compare", trace, known.trace, puzzle.title, goal=puzzle.goal, colour=colour)


class ReferenceRun(NamedTuple):
    """The reference solution's run at the shown size, its calls over all ranks, and the referee's report."""

    trace: Trace
    calls: Counter[str]
    report: Report


@cache
def _reference(slug: str) -> ReferenceRun | None:
    """The run of the reference solution; None where it is not installed."""
    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    goal = PUZZLES[slug].goal
    with ThreadPoolExecutor(1) as thread:  # where no event loop is running, as one is in a notebook
        trace = thread.submit(run, solution, *goal.size, setting=goal.setting).result().trace
    return ReferenceRun(trace, _counts(trace), referee(trace))


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")

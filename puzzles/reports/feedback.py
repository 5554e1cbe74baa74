"""What there is to learn after a pass: how the reference differs, who does this for real, which record stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any

from lib import Report, Trace, referee, run, trace_from_json
from lib.trace import TIMED
from puzzles.grading.verdict import Verdict
from puzzles.tracks import SCHEDULES, track_of


def story(verdict: Verdict, puzzle: Any) -> list[str]:
    """A few sentences on a solution that has passed."""
    return [
        *_reference(verdict),
        f"In practice: {_first_sentences(puzzle.in_practice)}",
        record(verdict, puzzle),
    ]


def record(verdict: Verdict, puzzle: Any) -> str:
    """The record that is still to beat."""
    return track_of(puzzle.slug).record(puzzle, verdict.figures, verdict.stars)


def _reference(verdict: Verdict) -> Iterator[str]:
    """How the reference schedule differs in what it does; only of a verdict that has its trace."""
    known = _known(verdict.puzzle) if verdict.trace and verdict.track == SCHEDULES.name else None
    if known is None:
        return
    theirs, report = known
    mine = _counts(trace_from_json(verdict.trace))
    differences = [
        f"{name} {theirs[name]} times (you: {mine[name]})"
        for name in sorted(mine | theirs)
        if mine[name] != theirs[name]
    ]
    same = (report.timesteps, report.peak.memory) == (verdict.timesteps, verdict.peak_memory)
    if differences:
        yield f"The reference calls {', '.join(differences)}, in all ranks together."
    elif same:
        yield "The reference does the same, call by call."
    if not same:
        yield f"It takes {report.timesteps:g} timesteps and {report.peak.memory:,} elements."


@cache
def _known(slug: str) -> tuple[Counter[str], Report] | None:
    """What the reference solution calls, and what it scores; None where it is not installed."""
    try:
        solution = getattr(import_module(f"solutions.{slug}"), slug)
    except ImportError:
        return None
    trace = run(solution, *SCHEDULES.puzzle(slug).goal.size).trace
    return _counts(trace), referee(trace)


def _counts(trace: Trace) -> Counter[str]:
    return Counter(op.name for ops in trace.ranks for op in ops if op.name in TIMED and op.name != "receive")


def _first_sentences(text: str) -> str:
    """The first two sentences of a paragraph; a full stop inside 'et al.' or a number ends none."""
    words, sentences = " ".join(text.split()), []
    for piece in words.replace("et al. ", "et al.\u00a0").split(". ")[:2]:
        sentences.append(piece.rstrip("."))
    return ". ".join(sentences).replace("\u00a0", " ") + "."

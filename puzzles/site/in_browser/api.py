"""What the page asks of Python: functions from and to plain data."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from typing import Any

from lib import Trace
from puzzles.catalog.schedule import PUZZLES
from puzzles.grading.verdict import Verdict
from puzzles.site import links, solutions_file
from puzzles.tracks import TRACKS, track_of
from puzzles.tracks.schedule.score import parse_trace

from .judging import judged, judged_run
from .words import described

_last: Verdict | None = None
"""The verdict on what ran last: the page shows it, and then asks for the picture of its run."""


async def judge(slug: str, text: str) -> dict[str, Any]:
    """The verdict on the code for a puzzle."""
    return _shown(await judged(PUZZLES[slug], text))


def verify(slug: str, trace: str) -> dict[str, Any]:
    """The verdict on a run that somebody sends: it is judged here again."""
    return _shown(judged_run(PUZZLES[slug], trace))


def story() -> list[str]:
    """What the last run is called, and how far it is from what is possible."""
    if _last is None or not _last.figures:
        return []
    return list(track_of(_last.puzzle).comparison(PUZZLES[_last.puzzle], _last.figures, _last.trace))


def view(colour: str) -> dict[str, Any] | None:
    """The interactive picture of the last run; None if there is nothing to draw."""
    if _last is None or not _last.trace:
        return None
    from .pictures import viewed  # here, since verdicts do not wait for what draws

    puzzle = PUZZLES[_last.puzzle]
    return viewed(_trace(_last), puzzle.title, puzzle.goal, colour)


def picture(colour: str, dark: bool) -> str:
    """The last run as SVG; empty if there is none."""
    if _last is None or not _last.trace:
        return ""
    from .pictures import picture

    puzzle = PUZZLES[_last.puzzle]
    return picture(_trace(_last), puzzle.title, puzzle.goal, colour, dark)


def trace() -> str:
    """The last run as JSON; empty if there is none."""
    return _last.trace if _last is not None else ""


def fragment(slug: str, kind: str, text: str) -> str:
    """What follows the '#' in a link to code or to a run."""
    return links.fragment(slug, kind, text)


def export(codes: dict[str, str]) -> str:
    """All solutions as one file."""
    return solutions_file.joined({slug: codes[slug] for slug in PUZZLES if slug in codes})


def split(text: str) -> dict[str, str]:
    """The code for each puzzle in a file."""
    return solutions_file.split(text, [slug for track in TRACKS.values() for slug in track.slugs])


async def answer(name: str, given: str) -> str:
    """The worker's only call: one of the functions above, from and to JSON; what it refuses is an error in words."""
    try:
        value = CALLS[name](*json.loads(given))
        return json.dumps({"value": await value if inspect.isawaitable(value) else value})
    except (SyntaxError, ValueError) as why:
        return json.dumps({"error": str(why)})


def _trace(verdict: Verdict) -> Trace:
    return parse_trace(verdict.trace)


def _shown(verdict: Verdict) -> dict[str, Any]:
    global _last
    _last = verdict
    return described(PUZZLES[verdict.puzzle], verdict)


CALLS: Mapping[str, Callable[..., Any]] = {
    call.__name__: call for call in (judge, verify, story, view, picture, trace, fragment, export, split)
}

"""Functions of the Python that judges and draws, from and to plain data. It never executes a player's code."""

from collections.abc import Callable
from typing import Any

from lib import Trace
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.verdict import Verdict
from puzzles.tracks import as_lines, differing_lines, track_of
from puzzles.tracks.schedule.judge import parse_trace

from . import calls, shown
from .calls import Calls, add_custom_puzzles, answered, judged, judged_run
from .shown import BLANK, described

add_custom_puzzles()

_last: Verdict | None = None
"""The verdict on what ran last: the page shows it, and then asks for the picture of its run."""


def judge(slug: str, record: Any) -> dict[str, Any]:
    return _shown(judged(_puzzle(slug), record))


def verify(slug: str, trace: str) -> dict[str, Any]:
    """The verdict on a run that somebody sends: it is judged here again."""
    return _shown(judged_run(_puzzle(slug), trace))


def story() -> list[str]:
    """What the last run is called, and how far it is from what is possible."""
    if _last is None or not _last.figures:
        return []
    return list(track_of(_last.puzzle).words.comparison(_puzzle(_last.puzzle), _last.figures, _last.trace))


def view(colour: str) -> dict[str, Any] | None:
    """The interactive picture of the last run; None if there is nothing to draw."""
    if _last is None or not _last.trace or _last.puzzle not in PUZZLES:
        return None
    puzzle = PUZZLES[_last.puzzle]
    return shown.viewed(_trace(_last), puzzle.title, puzzle.goal, colour)


def picture(colour: str, dark: bool) -> str:
    """The last run as SVG; empty if there is none."""
    if _last is None or not _last.trace:
        return ""
    if _last.puzzle not in PUZZLES:
        return track_of(_last.puzzle).show.picture(_puzzle(_last.puzzle), _last.trace)
    puzzle = PUZZLES[_last.puzzle]
    return shown.picture(_trace(_last), puzzle.title, puzzle.goal, colour, dark)


def compare(mine: str, reference: str, record: Any, colour: str, dark: bool) -> dict[str, Any]:
    """The reference beside the code that ran last: the lines that differ, and both runs in one picture as SVG."""
    assert _last is not None
    found = differing_lines(mine, reference, _last.puzzle) or []
    drawn = ""
    if _last.puzzle in PUZZLES:
        theirs = judged(PUZZLES[_last.puzzle], record)
        drawn = shown.compared(_trace(_last), _trace(theirs), PUZZLES[_last.puzzle], colour, dark)
    return {"lines": list(as_lines(found)), "picture": drawn}


def trace() -> str:
    """The last run as JSON; empty if there is none."""
    return _last.trace if _last is not None else ""


def timetable_of_runs(slug: str, record: Any) -> list[list[str]]:
    """The timetable that some code plays, as far as it runs."""
    verdict = judged(PUZZLES[slug], record)
    if not verdict.figures:
        raise ValueError(f"the code has no timetable, since it does not run through: {verdict.message or BLANK}")
    return shown.rows_of_run(PUZZLES[slug], _trace(verdict))


async def answer(name: str, given: str) -> str:
    """The worker's only call: one of `CALLS`."""
    return await answered(CALLS, name, given)


def _puzzle(slug: str) -> Puzzle:
    return track_of(slug).puzzle(slug)  # type: ignore[no-any-return]


def _trace(verdict: Verdict) -> Trace:
    return parse_trace(verdict.trace)


def _shown(verdict: Verdict) -> dict[str, Any]:
    global _last
    _last = verdict
    return described(_puzzle(verdict.puzzle), verdict)


def _of_puzzle(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function on a timetable by hand as the page calls it: with the name of the puzzle."""

    def call(slug: str, *given: Any) -> Any:
        return function(PUZZLES[slug], *given)

    return call


CALLS: Calls = {
    **{call.__name__: call for call in (judge, verify, story, view, picture, compare, trace, timetable_of_runs)},
    "profile": shown.profiled,
    "draft": _of_puzzle(shown.draft_shown),
    "refusals": _of_puzzle(shown.refusals),
    "written": _of_puzzle(shown.code_written),
    "read_timetable": _of_puzzle(shown.rows_read),
    "split": calls.split,
    "fragment": calls.fragment,
    "zipped": calls.zipped,
}
"""What the page may call, by name."""

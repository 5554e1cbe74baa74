"""A verdict and a run as plain data for the page: words, figures, the next move, the interactive picture, and a
picture to keep.
"""

from collections.abc import Mapping
from contextlib import redirect_stdout
from functools import partial
from io import BytesIO, StringIO
from typing import Any

from lib import Goal, Trace
from puzzles.catalog.puzzle import Puzzle
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.judge.verdict import Verdict
from puzzles.screens.feedback import HEADLINES, achieved, story
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import capitalized
from puzzles.tracks.schedule.show import can_be_drawn

# --- Verdicts ---


FAILED = "Fix it, and it runs again."
BLANK = "Write your lines between the two marks. They run whenever you pause."
OVER = "The hints help, from gentle to explicit."

MEANINGS = {"timesteps": "start of the last operation"}
"""What the name of a figure does not say."""


def described(puzzle: Puzzle, verdict: Verdict) -> dict[str, Any]:
    """What the page shows of a verdict."""
    track = track_of(puzzle.slug)
    return {
        "slug": puzzle.slug,
        "status": verdict.status,
        "stars": verdict.stars,
        "headline": HEADLINES[verdict.status],
        "measures": measures_data(puzzle, verdict.figures) if verdict.figures else [],
        "message": verdict.message,
        "line": verdict.line,
        "notes": [] if verdict.status == "passed" else list(verdict.notes),
        "details": [achieved(verdict), *verdict.notes] if verdict.status == "passed" else [],
        "why": list(verdict.why),
        "why_title": capitalized(track.words.why_title),
        "why_matters": verdict.why_matters,
        "praise": puzzle.praise if verdict.stars >= 3 else "",
        "next": next_move(verdict),
    }


def measures_data(puzzle: Puzzle, figures: Mapping[str, float]) -> list[dict[str, Any]]:
    """The figures beside their targets, as plain data."""
    return [
        {
            **measure._asdict(),
            "text": measure.value_text,
            "target_text": measure.target_text,
            "meaning": MEANINGS.get(measure.figure, ""),
        }
        for measure in track_of(puzzle.slug).words.measures(puzzle, figures)
    ]


def next_move(verdict: Verdict) -> str:
    """A sentence on what to do next."""
    match verdict.status:
        case "not_attempted":
            return BLANK
        case "failed":
            return FAILED
        case "over_target":
            return " ".join(filter(None, [verdict.advice, OVER]))
    return " ".join(story(verdict))


# --- Pictures ---


def viewed(trace: Trace, title: str, goal: Goal, colour: str) -> dict[str, Any] | None:
    """The interactive picture as data: its words and the run; None if there is nothing to draw."""
    if not can_be_drawn(trace):
        return None
    from drawing.html import run_data, view_words  # here, since verdicts do not wait for what draws
    from drawing.scene import scene_of

    scene = scene_of(trace, goal, colour)
    return {**view_words(scene, title), "run": run_data(scene)}


def profiled(files: list[list[str]]) -> dict[str, Any]:
    """A report on traces, and as data the pictures of a pipeline, with the lines that lead to its cells."""
    from drawing.html import run_data, view_words  # here, as above
    from lib.profiles import Shares, Source  # here, since verdicts need no profiles
    from puzzles.player.profile import profile
    from puzzles.screens.profile_pictures import page_parts

    found = profile(*(Source(name, partial(BytesIO, text.encode())) for name, text in files))
    if isinstance(found.study, Shares):
        return {"text": found.text, "views": [], "lines": [], "csv": ""}
    parts = page_parts(found.study)
    views = [
        {**view_words(scene, heading), "heading": heading, "run": run_data(scene)} for heading, scene in parts.views
    ]
    csv = found.csv() if found.study.prospect.better else ""
    return {"text": found.text, "views": views, "lines": parts.lines, "csv": csv}


def picture(trace: Trace, title: str, goal: Goal, colour: str, dark: bool) -> str:
    """The picture as papers have it, as SVG; empty if there is nothing to draw."""
    if not can_be_drawn(trace):
        return ""
    import drawing  # here, as above

    with redirect_stdout(StringIO()):  # `draw` prints the figures as well
        return drawing.svg(drawing.draw(trace, title, goal=goal, colour=colour, dark=dark))


def compared(mine: Trace, theirs: Trace, puzzle: SchedulePuzzle, colour: str, dark: bool) -> str:
    """A player's run above the reference, as SVG."""
    import drawing  # here, as above

    names = ("yours", "the reference")
    with redirect_stdout(StringIO()):
        return drawing.svg(
            drawing.draw_compare(mine, theirs, puzzle.title, names, goal=puzzle.goal, dark=dark, colour=colour)
        )

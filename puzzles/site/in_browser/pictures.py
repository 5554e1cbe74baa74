"""A run as plain data for the page: the interactive picture, and a picture to keep."""

from contextlib import redirect_stdout
from functools import partial
from io import BytesIO, StringIO
from typing import Any

import drawing
from drawing.export.html import run_data, view_words
from drawing.runs.scene import scene_of
from lib import Goal, Trace
from lib.profiles import Shares, Source
from puzzles.catalog.schedule import SchedulePuzzle
from puzzles.tracks.schedule.show import can_be_drawn


def viewed(trace: Trace, title: str, goal: Goal, colour: str) -> dict[str, Any] | None:
    """The interactive picture as data: its words and the run; None if there is nothing to draw."""
    if not can_be_drawn(trace):
        return None
    scene = scene_of(trace, goal, colour)
    return {**view_words(scene, title), "run": run_data(scene)}


def profiled(files: list[list[str]]) -> dict[str, Any]:
    """A report on traces, and as data the pictures of a pipeline, with the lines that lead to its cells."""
    from puzzles.notebook.profile import profile
    from puzzles.reports.profile_pictures import page_parts

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
    with redirect_stdout(StringIO()):  # `draw` prints the figures as well
        return drawing.svg(drawing.draw(trace, title, goal=goal, colour=colour, dark=dark))


def compared(mine: Trace, theirs: Trace, puzzle: SchedulePuzzle, colour: str, dark: bool) -> str:
    """A player's run above the reference, as SVG."""
    names = ("yours", "the reference")
    with redirect_stdout(StringIO()):
        return drawing.svg(
            drawing.draw_compare(mine, theirs, puzzle.title, names, goal=puzzle.goal, dark=dark, colour=colour)
        )

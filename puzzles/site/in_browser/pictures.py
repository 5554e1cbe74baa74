"""A run as plain data for the page: the interactive picture, and a picture to keep."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import drawing
from drawing.export.html import run_data, view_words
from drawing.runs.scene import scene_of
from lib import Goal, Trace
from puzzles.tracks.schedule.pictures import is_plausible


def viewed(trace: Trace, title: str, goal: Goal, colour: str) -> dict[str, Any] | None:
    """The interactive picture as data: its words and the run; None if there is nothing to draw."""
    if not any(trace.events(rank) for rank in range(len(trace.ranks))) or not is_plausible(trace):
        return None
    scene = scene_of(trace, goal, colour)
    return {**view_words(scene, title), "run": run_data(scene)}


def picture(trace: Trace, title: str, goal: Goal, colour: str, dark: bool) -> str:
    """The picture as papers have it, as SVG."""
    with redirect_stdout(StringIO()):  # `draw` prints the figures as well
        return drawing.svg(drawing.draw(trace, title, goal=goal, colour=colour, dark=dark))

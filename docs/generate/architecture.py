"""The picture of docs/architecture.md: from a player's code to a verdict and a picture, on the four tracks."""

from __future__ import annotations

from collections.abc import Iterator

from chalk.types import Diagram

from drawing.palette import EDGE, INK, KINDS, SOFT, STROKE
from drawing.pen import box, label, lines, panel, style
from drawing.picture import Picture

WIDTH, HEIGHT, GAP = 132.0, 54.0, 26.0

STOPS = ("player's code", "runtime", "record", "judgement", "verdict", "picture")
"""The boxes of a track, from left to right."""

ROWS = {
    "schedules": {
        "a coroutine": "one for each rank",
        "symbolic ranks": "lib/ledger/",
        "a trace": "lib/ledger/",
        "the referee": "lib/ledger/",
        "": "",
        "timelines": "drawing/",
    },
    "engine": {
        "a class": "one object a device",
        "real arrays": "lib/engine/",
        "results, meters": "lib/engine/metering.py",
        "the trials": "puzzles/tracks/engine/",
        "": "",
        "figures": "puzzles/screens/",
    },
    "layouts": {
        "strategies": "for some operators",
        "propagation": "lib/layout/propagation.py",
        "a plan": "lib/layout/",
        "bytes, a cap": "puzzles/tracks/layout/",
        "": "",
        "plans, holders": "drawing/",
    },
    "plans": {
        "a split": "of a training job",
        "an estimate": "lib/planning/",
        "a plan": "lib/planning/",
        "seconds, GiB": "puzzles/tracks/plan/",
        "": "",
        "time, memory": "drawing/",
    },
}
"""By track: what stands in each box, and below it the folder. One judge states the verdicts of all."""

COLOURS = dict(zip(ROWS, (KINDS["opt_states"], KINDS["activations"], "#d7e8d4", "#ecd9e4")))


def picture() -> Picture:
    """A row of boxes with arrows for each track; the verdict is one box for all."""
    width = len(STOPS) * (WIDTH + GAP) - GAP
    height = 30 + len(ROWS) * (HEIGHT + GAP) - GAP
    description = (
        "A player's code runs, its record is judged again, one judge states the verdict, and a picture shows it."
    )
    return Picture(panel(width, height, _parts(height)), "From a player's code to a verdict", description)


def _parts(height: float) -> Iterator[Diagram]:
    at = [k * (WIDTH + GAP) for k in range(len(STOPS))]
    for x, stop in zip(at, STOPS):
        yield label(x + WIDTH / 2, 8, stop, 12, SOFT, bold=True)
    for row, (track, texts) in enumerate(ROWS.items()):
        y = 30 + row * (HEIGHT + GAP)
        for x, (text, folder) in zip(at, texts.items()):
            if text:
                yield box(x, y, x + WIDTH, y + HEIGHT, style(COLOURS[track], EDGE))
                yield label(x + WIDTH / 2, y + HEIGHT * 0.36, text, 13, INK, bold=True)
                yield label(x + WIDTH / 2, y + HEIGHT * 0.72, folder, 10, SOFT)
        yield lines([_arrow(x - GAP, y + HEIGHT / 2) for x in at[1:]], style(None, STROKE, 1.5))
    x = at[STOPS.index("verdict")]
    yield box(x, 30, x + WIDTH, height, style("#ffffff", STROKE, 1.5))
    yield label(x + WIDTH / 2, (30 + height) / 2 - 10, "one judge", 13, INK, bold=True)
    yield label(x + WIDTH / 2, (30 + height) / 2 + 10, "puzzles/judge/", 10, SOFT)


def _arrow(x: float, y: float) -> list[tuple[float, float]]:
    """One stroke across a gap, with its head."""
    end = x + GAP - 3
    return [(x + 3, y), (end, y), (end - 5, y - 4), (end, y), (end - 5, y + 4)]

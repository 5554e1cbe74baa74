"""The table of one file: a row for each verdict, with stars, and figures with their targets."""

from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from puzzles.catalog.text_lines import full_width
from puzzles.grading.verdict import Verdict
from puzzles.tracks import Track, outcomes

from .standings import COLOURS, shown_size_mark, stars_text


def verdict_table(
    console: Console, track: Track[Any], verdicts: Sequence[Verdict], points: Sequence[Mapping[str, float]] = ()
) -> Table:
    """A row for each verdict, with figures and targets; on a narrow terminal each target is below its figure. What only
    some puzzles measure is in the sentences below."""
    wide = _verdict_rows(console, track, verdicts, points, " ")
    fits = full_width(console, wide) <= console.width
    return wide if fits else _verdict_rows(console, track, verdicts, points, "\n")


def _verdict_rows(
    console: Console,
    track: Track[Any],
    verdicts: Sequence[Verdict],
    points: Sequence[Mapping[str, float]],
    before_target: str,
) -> Table:
    table = empty_table(track, any(points))
    if not track.words.columns:
        table.add_column("figures", ratio=1)
    for v, worth in zip(verdicts, points or repeat(NO_POINTS)):
        stars = stars_text(console, v.stars) + shown_size_mark(v) if v.attempted else ""
        measures = {measure.figure: measure for measure in track.words.measures(track.puzzle(v.puzzle), v.figures)}
        figures = [
            Text.assemble(measures[name].value_text, before_target, (measures[name].target_cell, "dim"))
            if name in measures
            else Text(figure_text(v, name))
            for _, name in track.words.columns
        ]
        if not figures:
            figures = [
                Text(track.words.figures_text(track.puzzle(v.puzzle), v.figures), style="" if v.figures else "dim")
            ]
        cells = (*figures, status_text(v)) if track.words.columns else (status_text(v), *figures)
        table.add_row(Text(v.puzzle, style="" if v.attempted else "dim"), stars, *points_cells(worth), *cells)
    return table


NO_POINTS: Mapping[str, float] = {}


def points_cells(worth: Mapping[str, float]) -> list[Text]:
    return [Text.assemble(f"{worth['points']:g}", (f" of {worth['max_points']:g}", "dim"))] if worth else []


def empty_table(track: Track[Any], is_scored: bool) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("puzzle", "stars", *(["points"] if is_scored else [])):
        table.add_column(heading, no_wrap=True)
    for heading, _ in track.words.columns:
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    return table


def figure_text(verdict: Verdict, name: str) -> str:
    """A figure without its target; '-' where it was not measured."""
    value = verdict.figures.get(name)
    return "-" if value is None else outcomes.number_text(value)


def status_text(verdict: Verdict) -> Text:
    """'passed', 'failed: deadlock', in its colour."""
    text = verdict.status.replace("_", " ")
    return Text(f"{text}: {verdict.reason}" if verdict.reason else text, style=COLOURS[verdict.status])

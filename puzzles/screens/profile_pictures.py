"""Pictures of a profiled pipeline: what was measured above the same order replayed, with causes as a bar."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from drawing.html import PageView, web_pages
from drawing.picture import Picture
from drawing.predicted_vs_measured import draw_runs, measured, plain_scene
from drawing.scene import Scene
from lib import PuzzleError, Setting
from lib.ledger.named_costs import COSTS
from lib.ledger.runner import run_nested
from lib.pipelines import pipeline
from lib.pipelines.torch_csv import CellTimes, Pipeline, event_times
from lib.profiles import Study
from lib.profiles.gathered import makespan, replayed
from lib.profiles.studying import median_times
from puzzles.catalog.puzzle import with_papers

from .profiles import findings_text, ladder_text, prospect_text

MOST_DRAWN = 20_000
"""Cells of a run up to which it is drawn."""


def views(found: Study) -> tuple[dict[str, Scene], Pipeline]:
    """The measured run, and its order replayed with the median times of each stage: scenes by their headings, in ms;
    and the pipeline whose operations are their marks."""
    step, table = found.chosen.step, found.chosen.step.table
    if len(table.cells) > MOST_DRAWN:
        raise PuzzleError(f"this run has {len(table.cells):,} cells, and at most {MOST_DRAWN:,} are drawn")
    size = table.stages, table.batches, table.ranks
    setting = Setting(replace(COSTS["parts"], name="profiled", time_unit="ms"))
    played = Pipeline.of(run_nested(pipeline(table, buffered=True), *size, setting=setting).trace)
    times = median_times(found.chosen)
    replay = replayed(
        step.order,
        lambda rank, at: sum(times[cell.stage, cell.op] for cell in table.rows[rank][at]),
        found.chosen.message,
    )
    spans = [[(span.start, span.end) for span in row] for row in step.spans]
    scene = plain_scene(played.trace, "microbatch")
    headings = {
        f"Measured: {step.length:.1f} ms, {found.chosen.bubble:.1%} idle": spans,
        f"Replayed with the median times of each stage: {makespan(replay):.1f} ms": replay,
    }
    scenes = {
        words: measured(scene, event_times(played, _cells(found, played, one))) for words, one in headings.items()
    }
    return scenes, played


def _cells(found: Study, played: Pipeline, times: Sequence[Sequence[tuple[float, float]]]) -> CellTimes:
    """The times of cells, from the times of slots; cells that start together share theirs."""
    batches = played.only().batches
    cells: list[dict[str, tuple[float, float]]] = []
    for row, spans in zip(found.chosen.step.table.rows, times):
        cells.append({})
        for slot, (start, end) in zip(row, spans):
            each = (end - start) / len(slot)
            for n, cell in enumerate(slot):
                named = cell._replace(batch=batches[cell.batch])
                cells[-1][str(named)] = start + n * each, start + (n + 1) * each
    return cells


def bar_of(found: Study) -> dict[str, float]:
    """What the step consists of, in percent: computing, and the rungs of the ladder."""
    length = found.chosen.step.length
    return {"computing": 100 * (1 - found.chosen.bubble)} | {one.cause: 100 * one.ms / length for one in found.ladder}


def draw_profile(found: Study, title: str = "", dark: bool = False) -> Picture:
    notes = [ladder_text(found), *(one.text for one in found.findings[:3])]
    return draw_runs(views(found)[0], title or with_papers(found.name), notes, bar_of(found), dark)


class PageParts(NamedTuple):
    """What a page of a profiled pipeline shows: its runs, lines of text with the mark that each leads to, and the parts
    of the step in percent."""

    title: str
    views: list[PageView]
    lines: list[tuple[str, int | None]]
    bar: dict[str, float]


def page_parts(found: Study) -> PageParts:
    """The parts of a page, on which every finding leads to its cell."""
    scenes, played = views(found)
    only = played.only()
    numbers = {(mark.rank, mark.place): n for n, mark in enumerate(next(iter(scenes.values())).marks)}
    told = [*findings_text(found)]
    marks: list[int | None] = []
    for one in found.findings:
        rank, _ = found.chosen.step.order.places[one.cell]
        cell = one.cell._replace(batch=only.batches[one.cell.batch])
        marks.append(numbers[rank, only.cells[rank][cell][0]])
    lines = [ladder_text(found), *told, *prospect_text(found)]
    marks = [None, *marks, *[None] * len(lines)]
    shown = [PageView(heading, scene) for heading, scene in scenes.items()]
    return PageParts(with_papers(found.name), shown, [*zip(lines, marks)], bar_of(found))


def profile_page(found: Study) -> str:
    parts = page_parts(found)
    return web_pages(parts.views, parts.title, parts.lines, parts.bar)

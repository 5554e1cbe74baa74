"""Below memory: what each rank sends in the run, as one bar by kind of call, all on a common scale."""

from collections.abc import Iterator, Mapping

from chalk.types import Diagram

from drawing.number_text import short_text
from drawing.palette import CALLS, GRID, SOFT, TARGET, text_on
from drawing.pen import box, label, lines, panel, style, text_width, tooltip

from .axis import LEFT, Scale, draw_row_label
from .glyphs import glyph_of
from .rows import MarkRow
from .scene import Scene

HEAD = 38.0
MAX_PITCH = 20.0
FILLED = 0.7
"""Share of a rank's strip that its bar takes; the rest separates the ranks."""
ROOM = 10.0
"""Pixels around the words in a bar."""


def kind_text(kind: str) -> str:
    """What is sent, in words: 'all-gather', 'messages'."""
    return "messages" if kind == "pass_to" else glyph_of(kind).name


def sent_by_kind(scene: Scene, rank: int) -> dict[str, int]:
    """The elements that a rank sends by kind of call, in the order of the palette."""
    calls = scene.report.sent.by_rank[rank] if rank < len(scene.report.sent.by_rank) else ()
    found = {kind: sum(one.elements for one in calls if one.operation == kind) for kind in CALLS}
    return {kind: elements for kind, elements in found.items() if elements}


def highest_traffic(scene: Scene) -> int:
    """The top of the scale: the most that a rank sends, and the limit if that is not far above."""
    most, limit = scene.report.traffic, (scene.goal.traffic_limit or 0) if scene.goal is not None else 0
    return max(most, limit if limit <= 3 * most else 0)


def draw_traffic(scene: Scene, scale: Scale, most: int | None = None) -> Diagram:
    """The traffic of all ranks up to `most` elements, with the target if there is one; nothing where no rank sends."""
    most = most or highest_traffic(scene)
    if not scene.report.traffic:
        return panel(scale.width, 0.0, [])
    pitch = min(MAX_PITCH, scale.compute_pitch)
    height = HEAD + scale.rows * pitch + 4
    heading = f"traffic: elements that each rank sends, all on one scale up to {most:,}"
    parts = [label(LEFT, HEAD - 24, heading, 11, SOFT, "start"), *draw_target(scene, scale, most, height)]
    for row in scene.rows.every:
        parts += draw_row(row, sent_by_kind(scene, row.lane.rank), scale, most, pitch)
    return panel(scale.width, height, parts)


def draw_row(row: MarkRow, sent: Mapping[str, int], scale: Scale, most: int, pitch: float) -> Iterator[Diagram]:
    """One bar, with the kinds of calls in words where they fit."""
    top = HEAD - 12 + scale.places[row.lane.rank] * pitch
    middle, bottom = top + pitch * FILLED / 2, top + pitch * FILLED
    yield lines([[(LEFT, bottom), (scale.right, bottom)]], style(None, GRID))
    yield from draw_row_label(scale, row, middle)
    x, unit = LEFT, (scale.right - LEFT) / most
    for kind, elements in sent.items():
        words, end = f"{kind_text(kind)} {elements:,}", x + elements * unit
        yield tooltip(box(x, top, end, bottom, style(CALLS[kind])), f"{row.all}: {words} elements sent")
        if pitch * FILLED >= 11 and end - x > text_width(words, 10) + ROOM:
            yield label((x + end) / 2, middle, words, 10, text_on(CALLS[kind]))
        x = end
    if scale.is_labelled(row):
        yield label(scale.width, middle, short_text(sum(sent.values())), min(11.0, pitch * 0.6), SOFT, "end")


def draw_target(scene: Scene, scale: Scale, most: int, height: float) -> Iterator[Diagram]:
    """A dashed line at the limit below which the bars have to end."""
    goal = scene.goal
    if goal is None or goal.traffic_limit is None or goal.traffic_limit > most:
        return
    x = LEFT + (scale.right - LEFT) * goal.traffic_limit / most
    words = f"target {goal.traffic_words}"
    stroke = lines([[(x, HEAD - 14), (x, height - 4)]], style(None, TARGET, 1.0, dash=(5.0, 3.0)))
    yield tooltip(stroke, f"{words} elements sent")
    yield label(scale.right - 4, HEAD - 24, f"dashed: {words}", 11, TARGET, "end")

"""Below the lanes: each rank's memory by kind as a step line, and its traffic as a bar, all on common scales."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from chalk.types import Diagram

from drawing.number_text import short_text, time_text
from drawing.palette import ALARM, CALLS, GRID, INK, KINDS, MEMORY, PAPER, SOFT, TARGET, text_on
from drawing.pen import Point, box, diamond, hatch, label, lines, panel, polygons, style, text_width, tooltip
from lib import Goal

from .axis import LEFT, Scale, draw_grid, draw_row_label
from .glyphs import glyph_of
from .marks import MemorySpan
from .rows import MarkRow
from .scene import Scene

HEAD = 38.0
FILLED = 0.78
"""Share of a rank's strip that the highest memory takes; the rest separates the ranks."""
KIND_NAMES = {**{kind: kind for kind in KINDS}, "opt_states": "optimizer states"}


class Level(NamedTuple):
    """One level of a step line."""

    start: float
    end: float
    low: int
    high: int


def draw_memory(scene: Scene, scale: Scale, most: int | None = None) -> Diagram:
    """Memory of all ranks up to `most` elements, with the peak marked, and the target if there is one; nothing if the
    memory is not shown."""
    if not scene.shows_memory:
        return panel(scale.width, 0.0, [])
    most = most or highest(scene)
    height = HEAD + scale.rows * scale.memory_pitch
    heading = f"memory in elements, all ranks on one scale up to {most:,}"
    parts = [
        label(LEFT, HEAD - 24, heading, 11, SOFT, "start"),
        label(scale.width, HEAD - 24, "most", 10, SOFT, "end"),
        *draw_grid(scale, HEAD, height),
        *(part for row in scene.rows.every for part in draw_row_memory(row, most, scale)),
        *(draw_target(scene.goal, scene, most, scale) if scene.goal is not None else ()),
        *draw_peak(scene, most, scale),
    ]
    return panel(scale.width, height, parts)


def highest(scene: Scene) -> int:
    """The top of the scale: the highest memory, and the limit if it is not far above."""
    limit = scene.goal.memory_limit if scene.goal is not None else 0
    return max(scene.most, limit if limit <= 3 * scene.most else 0)


def floor_of(rank: int, scale: Scale) -> float:
    return HEAD + (scale.places[rank] + 1) * scale.memory_pitch


def height_of(memory: int, most: int, scale: Scale) -> float:
    return FILLED * scale.memory_pitch * memory / most if most else 0.0


def draw_row_memory(row: MarkRow, most: int, scale: Scale) -> Iterator[Diagram]:
    lane = row.lane
    floor = floor_of(lane.rank, scale)
    yield lines([[(LEFT, floor), (scale.right, floor)]], style(None, GRID))
    yield from draw_row_label(scale, row, floor - scale.memory_pitch / 2)
    if not any(span.end > span.start for span in lane.memory):
        return
    unit = height_of(1, most, scale) if most else 0.0
    base = [0] * len(lane.memory)
    for kind, colour in KINDS.items():
        shares = [getattr(span.kinds, kind) for span in lane.memory]
        tops = [low + sum(share) for low, share in zip(base, shares, strict=True)]
        levels = list(merged(lane.memory, base, tops))
        if any(level.high > level.low for level in levels):
            peak = max(level.high - level.low for level in levels)
            words = f"{row.all}: {KIND_NAMES[kind]}, at most {peak:,} elements"
            yield tooltip(polygons(areas(levels, unit, scale, floor), style(colour)), words)
        kept = [low + share.stored for low, share in zip(base, shares, strict=True)]
        hidden = list(merged(lane.memory, kept, tops))
        yield from draw_hidden(hidden, unit, scale, floor, f"{row.all}: held only in a variable: {KIND_NAMES[kind]}")
        base = tops
    yield lines([outline(list(merged(lane.memory, base, base)), unit, scale, floor)], style(None, MEMORY, 1.2))
    if scale.is_labelled(row):
        size = min(11.0, max(8.0, scale.compute_pitch * 0.45))
        words = short_text(max(span.memory for span in lane.memory))
        yield label(scale.width, floor - scale.memory_pitch / 2, words, size, SOFT, "end")


def draw_hidden(levels: Sequence[Level], unit: float, scale: Scale, floor: float, what: str) -> Iterator[Diagram]:
    """Memory that is in no dictionary, hatched; `what` it is and whose."""
    shown = [level for level in levels if level.high > level.low]
    if not shown:
        return
    frames = [(scale.x(s.start), floor - s.high * unit, scale.x(s.end), floor - s.low * unit) for s in shown]
    # Small strips get fewer strokes, because there are many of them.
    gap = min(max(3.5, sum(x1 - x0 for x0, _, x1, _ in frames) / (3 * scale.memory_pitch)), 16.0)
    strokes = [stroke for frame in frames for stroke in hatch(*frame, gap)]
    most = max(level.high - level.low for level in shown)
    yield tooltip(lines(strokes, style(None, INK, 0.8)), f"{what}, at most {most:,} elements")


def merged(spans: Sequence[MemorySpan], lows: Sequence[int], highs: Sequence[int]) -> Iterator[Level]:
    """Levels as steps; equal neighbors are merged."""
    levels = zip(spans, lows, highs, strict=True)
    for (low, high), group in groupby(levels, key=lambda level: level[1:]):
        members = [span for span, *_ in group]
        if members[-1].end > members[0].start:
            yield Level(members[0].start, members[-1].end, low, high)


def areas(levels: Sequence[Level], unit: float, scale: Scale, floor: float) -> Iterator[list[Point]]:
    """Outlines of adjacent levels with a height: along the top, and back along the bottom."""
    for solid, group in groupby(levels, key=lambda level: level.high > level.low):
        if solid:
            run = list(group)
            top = [(scale.x(x), floor - s.high * unit) for s in run for x in (s.start, s.end)]
            bottom = [(scale.x(x), floor - s.low * unit) for s in reversed(run) for x in (s.end, s.start)]
            yield corners_only([*top, *bottom])


def outline(levels: Sequence[Level], unit: float, scale: Scale, floor: float) -> list[Point]:
    """The line along the top."""
    return corners_only([(scale.x(x), floor - level.high * unit) for level in levels for x in (level.start, level.end)])


def corners_only(points: Sequence[Point]) -> list[Point]:
    """Drops points on a horizontal line between their neighbours."""
    kept: list[Point] = []
    for point in points:
        if len(kept) > 1 and kept[-1][1] == kept[-2][1] == point[1]:
            kept.pop()
        kept.append(point)
    return kept


def draw_target(goal: Goal, scene: Scene, most: int, scale: Scale) -> list[Diagram]:
    """A dashed line in each rank's strip, at the limit for memory."""
    if goal.memory_limit > most:
        return []
    limit = height_of(goal.memory_limit, most, scale)
    ys = [floor_of(lane.rank, scale) - limit for lane in scene.rows.lanes]
    words = f"target: {goal.memory_text} elements"
    stroke = lines([[(LEFT, y), (scale.right, y)] for y in ys], style(None, TARGET, 1.0, dash=(5.0, 3.0)))
    return [
        tooltip(stroke, words),
        label(scale.right - 4, HEAD - 24, f"dashed: target {goal.memory_text}", 11, TARGET, "end"),
    ]


def draw_peak(scene: Scene, most: int, scale: Scale) -> Sequence[Diagram]:
    """The peak: its rank, its time, its elements."""
    peak = scene.report.peak
    if not peak.memory:
        return []
    x, y = scale.x(peak.time), floor_of(peak.rank, scale) - height_of(peak.memory, most, scale)
    text = f"peak {peak.memory:,}"
    fits = x + 8 + text_width(text, 11, bold=True) < scale.right
    anchor, shift = ("start", 7) if fits else ("end", -7)
    return [
        diamond(x, y, 4, style(ALARM, PAPER, 0.8)),
        tooltip(
            label(x + shift, y - 9, text, 11, INK, anchor, bold=True, halo=PAPER),
            f"peak: {peak.memory:,} elements on rank {peak.rank} at t={time_text(peak.time)}",
        ),
    ]


MAX_PITCH = 20.0
BAR_FILLED = 0.7
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
    """The top of the scale: the highest traffic, and the limit if it is not far above."""
    most, limit = scene.report.traffic, (scene.goal.traffic_limit or 0) if scene.goal is not None else 0
    return max(most, limit if limit <= 3 * most else 0)


def draw_traffic(scene: Scene, scale: Scale, most: int | None = None) -> Diagram:
    """The traffic of all ranks up to `most` elements, with the target if there is one; nothing if no rank sends."""
    most = most or highest_traffic(scene)
    if not scene.report.traffic:
        return panel(scale.width, 0.0, [])
    pitch = min(MAX_PITCH, scale.compute_pitch)
    height = HEAD + scale.rows * pitch + 4
    heading = f"traffic: elements that each rank sends, all on one scale up to {most:,}"
    target = draw_traffic_target(scene, scale, most, height)
    parts = [label(LEFT, HEAD - 24, heading, 11, SOFT, "start"), *target]
    for row in scene.rows.every:
        parts += draw_row_traffic(row, sent_by_kind(scene, row.lane.rank), scale, most, pitch)
    return panel(scale.width, height, parts)


def draw_row_traffic(row: MarkRow, sent: Mapping[str, int], scale: Scale, most: int, pitch: float) -> Iterator[Diagram]:
    """One bar, with the kinds of calls in words where they fit."""
    top = HEAD - 12 + scale.places[row.lane.rank] * pitch
    middle, bottom = top + pitch * BAR_FILLED / 2, top + pitch * BAR_FILLED
    yield lines([[(LEFT, bottom), (scale.right, bottom)]], style(None, GRID))
    yield from draw_row_label(scale, row, middle)
    x, unit = LEFT, (scale.right - LEFT) / most
    for kind, elements in sent.items():
        words, end = f"{kind_text(kind)} {elements:,}", x + elements * unit
        yield tooltip(box(x, top, end, bottom, style(CALLS[kind])), f"{row.all}: {words} elements sent")
        if pitch * BAR_FILLED >= 11 and end - x > text_width(words, 10) + ROOM:
            yield label((x + end) / 2, middle, words, 10, text_on(CALLS[kind]))
        x = end
    if scale.is_labelled(row):
        yield label(scale.width, middle, short_text(sum(sent.values())), min(11.0, pitch * 0.6), SOFT, "end")


def draw_traffic_target(scene: Scene, scale: Scale, most: int, height: float) -> Iterator[Diagram]:
    """A dashed line at the limit for the bars."""
    goal = scene.goal
    if goal is None or goal.traffic_limit is None or goal.traffic_limit > most:
        return
    x = LEFT + (scale.right - LEFT) * goal.traffic_limit / most
    words = f"target {goal.traffic_words}"
    stroke = lines([[(x, HEAD - 14), (x, height - 4)]], style(None, TARGET, 1.0, dash=(5.0, 3.0)))
    yield tooltip(stroke, f"{words} elements sent")
    yield label(scale.right - 4, HEAD - 24, f"dashed: {words}", 11, TARGET, "end")

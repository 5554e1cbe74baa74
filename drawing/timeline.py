"""The timeline of a run on one page: its axis, a lane per rank with links for messages and ties for collectives, below
the lanes memory by kind and traffic, and the legend; and two runs on one time axis.

A picture shows what the scene has: times, rows, memory and waits are not computed here. `Scale` alone converts steps
and rows to pixels; two runs that are compared have the same one. A long run widens the picture instead of making a step
too narrow to read, and many ranks make lanes lower, whose labels are then thinned out. What takes no time is drawn on
top of its neighbours, idle time behind its reason.

All parts are drawn at their final place on flat panels, because chalk composes slowly where it needs envelopes (see
`pen`). An operation in the legend is drawn by the function that draws it in its lane, so the two cannot differ.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from textwrap import wrap
from typing import Any, NamedTuple, Self, TypeVar

from chalk.types import Diagram

from drawing import palette
from drawing.glyphs import LETTERED, Frame, batches_text, draw_bar, draw_mark, glyph_of, in_legend_order
from drawing.pen import (
    EM,
    Point,
    box,
    clip,
    diamond,
    hatch,
    label,
    lines,
    panel,
    polygons,
    short_text,
    stack,
    style,
    text_width,
    time_text,
    tooltip,
)
from drawing.picture import Picture
from drawing.run_text import (
    SHARED,
    describe,
    describe_gap,
    describe_run,
    error_clauses,
    error_text,
    has_ended,
    name_of,
    reasons,
    summary,
    text_of,
    titled,
)
from drawing.scene import (
    Band,
    Colouring,
    LaneMarks,
    Link,
    Mark,
    MarkRow,
    MemorySpan,
    RunLike,
    Scene,
    Tie,
    facts_of,
    scene_from,
    sent_by_kind,
    tinted,
)
from lib import COMPUTING, Goal, Report, Sample

LEFT, RIGHT = 62.0, 54.0
MIN_STEP_WIDTH = 12.0
"""A long run widens the picture instead of making a step narrower than this."""
AXIS_HEIGHT = 20.0


@dataclass(frozen=True)
class Scale:
    """Converts steps and rows to pixels."""

    end: float
    rows: int
    unit: str = "steps"
    step: float = 1.0
    """The time that is never narrower than MIN_STEP_WIDTH: a step, or in microseconds the shortest computation."""
    streams: int = 1
    """The streams of each rank: computation, and communication streams."""
    steps: int = 1
    """Training steps; the numbers of several have a row below the axis."""
    places: tuple[int, ...] = ()
    """By rank: the number of its row."""
    wide: float = 0.0
    """The width of the time axis in pixels, if another scale determines it."""

    @classmethod
    def of(cls, scene: Scene, **more: Any) -> Self:
        """The scale of a picture of one run; `more` are fields that differ."""
        rows = scene.rows
        fields = {"end": scene.end, "rows": len(rows.every), "places": rows.places, "unit": scene.time_unit}
        if scene.time_unit != "steps":
            computed = (mark.end - mark.start for mark in scene.marks if mark.op.name in COMPUTING)
            fields["step"] = min(computed, default=scene.end) or 1.0
        return cls(**{**fields, "streams": len(scene.streams), "steps": scene.steps, **more})

    @property
    def time_width(self) -> float:
        fits_a_notebook = 976.0 - LEFT - RIGHT
        return self.wide or min(max(fits_a_notebook, self.end / self.step * MIN_STEP_WIDTH), 8000.0)

    @property
    def width(self) -> float:
        return LEFT + self.time_width + RIGHT

    @property
    def right(self) -> float:
        return LEFT + self.time_width

    @property
    def axis_height(self) -> float:
        return AXIS_HEIGHT + (18.0 if self.steps > 1 else 0.0)  # for the numbers of the training steps

    @property
    def pitch(self) -> float:
        """The distance between lanes: half as much more for each communication stream."""
        return self.compute_pitch * (1 + 0.45 * (self.streams - 1))

    @property
    def compute_pitch(self) -> float:
        """The distance between lanes with computation only."""
        for rows, pitch in ((1, 60.0), (4, 43.0), (8, 38.0), (16, 28.0), (32, 18.0), (64, 14.0)):
            if self.rows <= rows:
                return pitch
        return max(4.0, 832.0 / self.rows)

    @property
    def lane(self) -> float:
        """Height of a lane's boxes; the rest is for links between lanes."""
        return self.pitch * 0.78

    def row(self, stream: int) -> tuple[float, float]:
        """Top and bottom of a stream's boxes, from the top of the lane; computation is first."""
        if self.streams == 1:
            return 0.0, self.lane
        compute = self.compute_pitch * 0.78
        each = (self.lane - compute) / (self.streams - 1)
        return (0.0, compute) if stream == 0 else (compute + (stream - 1) * each + each * 0.12, compute + stream * each)

    @property
    def memory_pitch(self) -> float:
        return max(4.0, self.compute_pitch * (1.25 if self.rows <= 4 else 0.95))

    def is_labelled(self, row: MarkRow) -> bool:
        """Only every n-th lane gets a label if they are too close for all."""
        return self.places[row.lane.rank] % max(1, -(-9 // int(self.pitch))) == 0

    @property
    def span(self) -> float:
        """The steps that fill the width: the run, or more if it is short."""
        return max(self.end, self.time_width / 200.0 * self.step)

    def x(self, time: float) -> float:
        return LEFT + self.time_width * time / self.span


def grid_times(scale: Scale) -> list[float]:
    """Round times, at least fifty pixels apart: 0, 1, 2 ... or 0, 5, 10 ..."""
    wanted = scale.span * 48 / scale.time_width
    gap = 0.1
    for gap in (b * 10.0**e for e in range(-1, 9) for b in (1, 2, 5)):
        if gap >= wanted:
            break
    return [round(i * gap, 1) for i in range(int(scale.span / gap + 1e-9) + 1)]


def draw_axis(scale: Scale, y: float) -> list[Diagram]:
    """The numbers on the axis, with their line at height `y`."""
    numbers = [label(scale.x(t), y - 8, time_text(t), 10, palette.SOFT) for t in grid_times(scale)]
    return [*numbers, label(LEFT - 8, y - 8, scale.unit, 10, palette.SOFT, "end")]


def draw_grid(scale: Scale, y0: float, y1: float) -> list[Diagram]:
    """A thin line at each tick, behind everything."""
    return [lines([[(scale.x(t), y0), (scale.x(t), y1)] for t in grid_times(scale)], style(None, palette.GRID))]


def draw_row_label(scale: Scale, row: MarkRow, y: float) -> list[Diagram]:
    if not scale.is_labelled(row):
        return []
    size = min(12.0, max(8.0, scale.compute_pitch * 0.5), (LEFT - 8) / text_width(row.label, 1.0))
    return [label(LEFT - 8, y, row.label, size, palette.SOFT, "end")]


# --- Memory and traffic ---

HEAD = 38.0
KIND_NAMES = {**{kind: kind for kind in palette.KINDS}, "opt_states": "optimizer states"}


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
        label(LEFT, HEAD - 24, heading, 11, palette.SOFT, "start"),
        label(scale.width, HEAD - 24, "most", 10, palette.SOFT, "end"),
        *draw_grid(scale, HEAD, height),
        *(part for row in scene.rows.every for part in draw_row_memory(row, most, scale)),
        *(draw_target(scene.goal, scene, most, scale) if scene.goal is not None else ()),
        *draw_peak(scene, most, scale),
    ]
    return panel(scale.width, height, parts)


def top_of_scale(most: int, limit: int) -> int:
    """What is highest, and the limit if it is not far above."""
    return max(most, limit if limit <= 3 * most else 0)


def highest(scene: Scene) -> int:
    return top_of_scale(scene.most, scene.goal.memory_limit if scene.goal is not None else 0)


def floor_of(rank: int, scale: Scale) -> float:
    return HEAD + (scale.places[rank] + 1) * scale.memory_pitch


def height_of(memory: int, most: int, scale: Scale) -> float:
    return 0.78 * scale.memory_pitch * memory / most if most else 0.0


def draw_row_memory(row: MarkRow, most: int, scale: Scale) -> Iterator[Diagram]:
    lane = row.lane
    floor = floor_of(lane.rank, scale)
    yield lines([[(LEFT, floor), (scale.right, floor)]], style(None, palette.GRID))
    yield from draw_row_label(scale, row, floor - scale.memory_pitch / 2)
    if not any(span.end > span.start for span in lane.memory):
        return
    unit = height_of(1, most, scale) if most else 0.0
    base = [0] * len(lane.memory)
    for kind, colour in palette.KINDS.items():
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
    yield lines([outline(list(merged(lane.memory, base, base)), unit, scale, floor)], style(None, palette.MEMORY, 1.2))
    if scale.is_labelled(row):
        size = min(11.0, max(8.0, scale.compute_pitch * 0.45))
        words = short_text(max(span.memory for span in lane.memory))
        yield label(scale.width, floor - scale.memory_pitch / 2, words, size, palette.SOFT, "end")


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
    yield tooltip(lines(strokes, style(None, palette.INK, 0.8)), f"{what}, at most {most:,} elements")


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
    stroke = lines([[(LEFT, y), (scale.right, y)] for y in ys], style(None, palette.TARGET, 1.0, dash=(5.0, 3.0)))
    return [
        tooltip(stroke, words),
        label(scale.right - 4, HEAD - 24, f"dashed: target {goal.memory_text}", 11, palette.TARGET, "end"),
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
        diamond(x, y, 4, style(palette.ALARM, palette.PAPER, 0.8)),
        tooltip(
            label(x + shift, y - 9, text, 11, palette.INK, anchor, bold=True, halo=palette.PAPER),
            f"peak: {peak.memory:,} elements on rank {peak.rank} at t={time_text(peak.time)}",
        ),
    ]


BAR_FILLED = 0.7
"""Share of a rank's strip that its bar takes; the rest separates the ranks."""


def kind_text(kind: str) -> str:
    """What is sent, in words: 'all-gather', 'messages'."""
    return "messages" if kind == "pass_to" else glyph_of(kind).name


def highest_traffic(scene: Scene) -> int:
    return top_of_scale(scene.report.traffic, (scene.goal.traffic_limit or 0) if scene.goal is not None else 0)


def draw_traffic(scene: Scene, scale: Scale, most: int | None = None) -> Diagram:
    """The traffic of all ranks up to `most` elements, with the target if there is one; nothing if no rank sends."""
    most = most or highest_traffic(scene)
    if not scene.report.traffic:
        return panel(scale.width, 0.0, [])
    pitch = min(20.0, scale.compute_pitch)
    height = HEAD + scale.rows * pitch + 4
    heading = f"traffic: elements that each rank sends, all on one scale up to {most:,}"
    target = draw_traffic_target(scene, scale, most, height)
    parts = [label(LEFT, HEAD - 24, heading, 11, palette.SOFT, "start"), *target]
    for row in scene.rows.every:
        parts += draw_row_traffic(row, sent_by_kind(scene, row.lane.rank), scale, most, pitch)
    return panel(scale.width, height, parts)


def draw_row_traffic(row: MarkRow, sent: Mapping[str, int], scale: Scale, most: int, pitch: float) -> Iterator[Diagram]:
    """One bar, with the kinds of calls in words where they fit."""
    top = HEAD - 12 + scale.places[row.lane.rank] * pitch
    middle, bottom = top + pitch * BAR_FILLED / 2, top + pitch * BAR_FILLED
    yield lines([[(LEFT, bottom), (scale.right, bottom)]], style(None, palette.GRID))
    yield from draw_row_label(scale, row, middle)
    x, unit = LEFT, (scale.right - LEFT) / most
    for kind, elements in sent.items():
        words, end = f"{kind_text(kind)} {elements:,}", x + elements * unit
        yield tooltip(box(x, top, end, bottom, style(palette.CALLS[kind])), f"{row.all}: {words} elements sent")
        if pitch * BAR_FILLED >= 11 and end - x > text_width(words, 10) + 10.0:
            yield label((x + end) / 2, middle, words, 10, palette.text_on(palette.CALLS[kind]))
        x = end
    if scale.is_labelled(row):
        yield label(scale.width, middle, short_text(sum(sent.values())), min(11.0, pitch * 0.6), palette.SOFT, "end")


def draw_traffic_target(scene: Scene, scale: Scale, most: int, height: float) -> Iterator[Diagram]:
    """A dashed line at the limit for the bars."""
    goal = scene.goal
    if goal is None or goal.traffic_limit is None or goal.traffic_limit > most:
        return
    x = LEFT + (scale.right - LEFT) * goal.traffic_limit / most
    words = f"target {goal.traffic_words}"
    stroke = lines([[(x, HEAD - 14), (x, height - 4)]], style(None, palette.TARGET, 1.0, dash=(5.0, 3.0)))
    yield tooltip(stroke, f"{words} elements sent")
    yield label(scale.right - 4, HEAD - 24, f"dashed: {words}", 11, palette.TARGET, "end")


# --- Lanes, links and ties ---

SIZE = 10.0


def draw_bands(scene: Scene, scale: Scale) -> Iterator[Diagram]:
    """The background of the lanes: a shade for every other step. Nothing in a run of one step."""
    for row, band, y0, y1 in places(scene, scale):
        if band.step % 2:
            words = f"{row.all}: step {band.step}, t={time_text(band.start)} to {time_text(band.end)}"
            yield tooltip(box(scale.x(band.start), y0, scale.x(band.end), y1, style(palette.STEP)), words)
    if scene.steps > 1:
        yield from draw_numbers(scene.lanes[0].bands(0, scene.end), scale)


def places(scene: Scene, scale: Scale) -> Iterator[tuple[MarkRow, Band, float, float]]:
    """Every band with a length, with its top and bottom. Rows touch, and the first reaches up to the axis."""
    for number, row in enumerate(scene.rows.every):
        top = scale.axis_height + number * scale.pitch
        first = top + (scale.pitch - scale.lane) / 2
        for stream in range(len(scene.streams)):
            y0 = first + scale.row(stream)[0] if stream else top if number else AXIS_HEIGHT
            y1 = first + scale.row(stream + 1)[0] if stream + 1 < scale.streams else top + scale.pitch
            for band in row.lane.bands(stream, scene.end):
                if band.end > band.start:
                    yield row, band, y0, y1


def draw_numbers(bands: list[Band], scale: Scale) -> Iterator[Diagram]:
    """'step 1' at the start of each band that is wide enough, or only its number."""
    y = (AXIS_HEIGHT + scale.axis_height) / 2 - 2
    for band in bands:
        room = scale.x(band.end) - scale.x(band.start) - 6
        text = next((t for t in (f"step {band.step}", str(band.step)) if text_width(t, SIZE, bold=True) <= room), "")
        if text:
            yield label(scale.x(band.start) + 4, y, text, SIZE, palette.SOFT, "start", bold=True)


WAIT_SIZE = 9.5


def draw_lanes(scene: Scene, scale: Scale, critical: bool = False) -> Diagram:
    """All ranks on a common time axis, with the critical path if requested."""
    height = scale.axis_height + scale.rows * scale.pitch
    back = [
        *draw_bands(scene, scale),
        *draw_axis(scale, AXIS_HEIGHT),
        *draw_grid(scale, AXIS_HEIGHT, height),
        label(scale.width, AXIS_HEIGHT - 8, "busy", 10, palette.SOFT, "end"),
        *draw_ties(scene.rows.ties(scene.ties), scale),
    ]
    if not (any(lane.marks for lane in scene.lanes) or has_ended(scene)):
        middle = (scale.axis_height + height) / 2
        back.append(label((LEFT + scale.right) / 2, middle, "nothing has happened yet", 13, palette.SOFT))
    rows = [part for row in scene.rows.every for part in draw_row(row, scene, scale)]
    links = [*draw_links(scene.rows.links(scene.links), scale), *draw_cycle(scene, scale)]
    path = draw_critical(scene, scale) if critical else []
    starts = [(scale.x(band.start), y0, y1) for _, band, y0, y1 in places(scene, scale) if band.start]
    borders = lines(
        [[(x, y0), (x, y1)] for x, y0, y1 in starts], style(None, palette.STEP_EDGE, 1.4)
    )  # where a step begins
    return panel(scale.width, height, [*back, *rows, borders, *links, *path])


def draw_row(row: MarkRow, scene: Scene, scale: Scale) -> Iterator[Diagram]:
    """One row: its label, idle times, operations, and share of working time."""
    lane = row.lane
    y0, y1 = row_of(lane.rank, 0, scale)
    yield from draw_row_label(scale, row, (y0 + y1) / 2)
    yield from draw_streams(lane, scene.streams, scale)
    yield from draw_gaps(row, scene, scale, y0, y1)
    # What takes no time is drawn last, on top of its neighbors.
    for mark in sorted(lane.marks, key=lambda mark: mark.end == mark.start):
        shape, *text = draw_mark(mark, frame_of(mark, scene, scale), scene.colouring)
        yield tooltip(shape, describe(mark, row.first))
        yield from text
    if scale.is_labelled(row):
        busy = f"{100 * scene.report.ranks[lane.rank].busy:.0f}%"
        size = min(11.0, max(8.0, scale.compute_pitch * 0.45))
        yield label(scale.width, (y0 + y1) / 2, busy, size, palette.SOFT, "end")


def row_of(rank: int, stream: int, scale: Scale) -> tuple[float, float]:
    """Top and bottom of the boxes of one stream of a rank."""
    top = scale.axis_height + scale.places[rank] * scale.pitch + (scale.pitch - scale.lane) / 2
    y0, y1 = scale.row(stream)
    return top + y0, top + y1


def draw_streams(lane: LaneMarks, streams: Sequence[str], scale: Scale) -> Iterator[Diagram]:
    """The names of the communication streams, and pending calls that do not run: after they are made, and until they
    are awaited."""
    for stream, name in enumerate(streams[1:], 1):
        y0, y1 = row_of(lane.rank, stream, scale)
        middle = (y0 + y1) / 2
        if y1 - y0 >= 8:
            yield label(LEFT - 8, middle, name, min(9.5, (y1 - y0) * 0.8), palette.SOFT, "end")
        waiting = [
            [(scale.x(start), middle), (scale.x(end), middle)]
            for mark in lane.on(stream)
            for start, end in ((mark.called, mark.start), (mark.end, mark.awaited))
            if start is not None and end is not None and end > start
        ]
        yield lines(waiting, style(None, palette.UNDER_WAY, 1.3, dash=(2.0, 2.0)))


def frame_of(mark: Mark, scene: Scene, scale: Scale) -> Frame:
    y0, y1 = row_of(mark.rank, mark.stream, scale)
    above = scene.rows.is_above(mark.partner, mark.rank)
    return Frame(scale.x(mark.start), y0, scale.x(mark.end), y1, -1 if above else 1, 0.5 if mark.stream else 1.0)


def draw_gaps(row: MarkRow, scene: Scene, scale: Scale, y0: float, y1: float) -> Iterator[Diagram]:
    """Idle time, pale and hatched, with the reason for the wait."""
    gaps = [gap for gap in row.lane.gaps if scale.x(gap.end) - scale.x(gap.start) >= 0.1]
    strokes = [stroke for gap in gaps for stroke in hatch(scale.x(gap.start), y0, scale.x(gap.end), y1, gap=9.0)]
    yield lines(strokes, style(None, palette.IDLE_HATCH, 0.9))
    for gap in gaps:
        # On top of its hatching, so that the tooltip shows everywhere.
        pane = box(scale.x(gap.start), y0, scale.x(gap.end), y1, style(palette.IDLE, opacity=0.5))
        yield tooltip(pane, describe_gap(gap, row.first, scene))
        words, _ = reasons(gap, scene)
        if scale.compute_pitch >= 25 and text_width(words, WAIT_SIZE) + 16 < scale.x(gap.end) - scale.x(gap.start):
            middle = (scale.x(gap.start) + scale.x(gap.end)) / 2
            yield label(middle, (y0 + y1) / 2, words, WAIT_SIZE, palette.SOFT, halo=palette.IDLE)


def draw_ties(ties: tuple[Tie, ...], scale: Scale) -> list[Diagram]:
    """Each collective: one vertical line through all its lanes."""
    uprights = []
    for tie in ties:
        x = scale.x((tie.start + tie.end) / 2) + aside(tie)
        first, last = (row_of(mark.rank, mark.stream, scale) for mark in (tie.members[0], tie.members[-1]))
        uprights.append([(x, first[0]), (x, last[1])])
    return [lines(uprights, style(None, palette.STROKE, 2.0))]


def aside(tie: Tie) -> float:
    """The horizontal distance that separates the vertical lines of interleaved groups, such as {0, 4} and {1, 5}."""
    first, last = tie.members[0].rank, tie.members[-1].rank
    return 0.0 if last - first == len(tie.members) - 1 else 3.0 * (first % 4) - 4.5


def draw_links(links: tuple[Link, ...], scale: Scale) -> list[Diagram]:
    """Each message: from the tip of its send to the notch of its receive; dashed if it was never read."""
    received = [link_line(link, scale) for link in links if link.received is not None]
    lost = [link_line(link, scale) for link in links if link.received is None]
    strokes, heads = arrows(received, palette.INK, 1.2)
    return [strokes, lines(lost, style(None, palette.INK, 1.2, dash=(3, 3))), heads]


def draw_cycle(scene: Scene, scale: Scale) -> list[Diagram]:
    """A deadlock in a cycle: an arrow from each rank to the rank for which it waits, at their stuck calls."""
    waits = []
    for number, pair in enumerate(facts_of(scene.report.error).get("cycle", ())):
        x = scale.x(scene.end) - 6.0 * (number + 1)
        start, end = ((x, sum(row_of(rank, 0, scale)) / 2) for rank in pair)
        waits.append((start, end))
    return arrows(waits, palette.ALARM, 1.4)


def link_line(link: Link, scale: Scale) -> tuple[Point, Point]:
    """Both ends of a message; straight up or down if it was never read."""
    x0 = scale.x(link.sent)
    x1 = scale.x(link.received) if link.received is not None else x0
    top, bottom = row_of(link.source, link.send.stream, scale)
    far_top, far_bottom = row_of(link.target, 0, scale)
    if scale.places[link.target] > scale.places[link.source]:
        return (x0, bottom), (x1, far_top)
    return (x0, top), (x1, far_bottom)


def arrows(strokes: Sequence[tuple[Point, Point]], colour: str, width: float) -> list[Diagram]:
    """Lines with a small arrowhead at the end."""
    heads = []
    for (x0, y0), (x1, y1) in strokes:
        length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
        ux, uy = (x1 - x0) / length * 5, (y1 - y0) / length * 5
        heads.append([(x1, y1), (x1 - ux - uy / 2, y1 - uy + ux / 2), (x1 - ux + uy / 2, y1 - uy - ux / 2)])
    return [lines(strokes, style(None, colour, width)), polygons(heads, style(colour))]


def draw_critical(scene: Scene, scale: Scale) -> list[Diagram]:
    """The critical path: one line below the operations for which the end of the run waited, from lane to lane."""
    points: list[Point] = []
    for mark in scene.critical:
        y = row_of(mark.rank, mark.stream, scale)[1] + 1
        points += [(scale.x(mark.start), y), (scale.x(mark.end), y)]
    return (
        [lines([points], style(None, palette.PAPER, 5.5)), lines([points], style(None, palette.CRITICAL, 3.0))]
        if points
        else []
    )


# --- The legend ---

T = TypeVar("T")

ROW = 26.0
LEGEND_SIZE = 11.0
MAX_LAYERS, MAX_BATCHES = 12, 32


class LegendEntry(NamedTuple):
    """One sample with its text; `parts` are in the box from (0, 0) to (`width`, ROW)."""

    width: float
    parts: Sequence[Diagram]


def draw_legend(scenes: Sequence[Scene], width: float, critical: bool = False) -> Diagram:
    """Draws entries from left to right, in as many rows as needed."""
    placed: list[Diagram] = []
    x, y = 0.0, 8.0
    for entry in entries(scenes, critical):
        if x and x + entry.width > width:
            x, y = 0.0, y + ROW
        placed.append(panel(entry.width, ROW, entry.parts).translate(x, y))
        x += entry.width + 20
    return panel(width, y + ROW if placed else 0.0, placed)


def entries(scenes: Sequence[Scene], critical: bool) -> Iterator[LegendEntry]:
    first: dict[str, tuple[Mark, Colouring]] = {}
    for scene in scenes:
        for mark in scene.rows.marks:
            if not (mark.again or mark.old) and (
                mark.end > mark.start or mark.op.name == "loss"
            ):  # drawn as more than a line
                first.setdefault(mark.op.name, (mark, scene.colouring))
    for name in in_legend_order(first):
        yield operation_entry(*first[name])
    for is_so, words in (("again", "forward again (recomputation)"), ("old", "forward with old weights")):
        hatched = next((mark for scene in scenes for mark in scene.rows.marks if getattr(mark, is_so)), None)
        if hatched is not None:
            yield operation_entry(hatched, scenes[0].colouring, words)
    if (steps := max(scene.steps for scene in scenes)) > 1:
        border = lines([[(12, 4), (12, ROW - 4)]], style(None, palette.STEP_EDGE, 1.2))
        yield worded(24, [box(12, 4, 24, ROW - 4, style(palette.STEP)), border], shaded_text(steps))
    if any(len(scene.streams) > 1 for scene in scenes):
        stroke = lines([[(0, ROW / 2), (24, ROW / 2)]], style(None, palette.UNDER_WAY, 1.3, dash=(2.0, 2.0)))
        yield worded(24, [stroke], "called, not started; or ended, not awaited")
    if any(lane.gaps for scene in scenes for lane in scene.rows.lanes):
        frame = (0.0, 4.0, 24.0, ROW - 4)
        strokes = lines(hatch(*frame, gap=9.0), style(None, palette.IDLE_HATCH, 0.8))
        yield worded(24, [box(*frame, style(palette.IDLE)), strokes], "idle")
    if any(scene.rows.are_shared for scene in scenes):
        yield worded(0, [], SHARED)
    if critical:
        yield worded(24, [lines([[(0, ROW / 2), (24, ROW / 2)]], style(None, palette.CRITICAL, 3.0))], "critical path")
    yield from colour_entries(scenes)
    yield from memory_entries([span.kinds for scene in scenes for lane in scene.rows.lanes for span in lane.memory])
    # The kinds of calls in the bars of traffic.
    sent = {calls.operation for scene in scenes for calls in chain(*scene.report.sent.by_rank) if calls.elements}
    yield from squares([(f"sent: {kind_text(kind)}", colour) for kind, colour in palette.CALLS.items() if kind in sent])


def colour_entries(scenes: Sequence[Scene]) -> Iterator[LegendEntry]:
    """The layers or the microbatches in their colours, and the bars of chunks."""
    by, marks = scenes[0].colour, [mark for scene in scenes for mark in scene.rows.marks if mark.op.name in LETTERED]
    layers = sorted({mark.op.layer for mark in marks if mark.op.layer is not None})
    batches = sorted({min(mark.op.batches) for mark in marks if mark.op.batches})
    if by == "layer" and layers:
        total = max(scene.layers for scene in scenes)
        yield swatches("layer", thin_out(layers, MAX_LAYERS), lambda layer: palette.layer_colour(layer, total))
    if by == "microbatch" and batches:
        yield swatches("microbatch", thin_out(batches, MAX_BATCHES), palette.batch_colour)
    bars = sorted({length for scene in scenes for length in scene.colouring.bars.values()})
    if bars:
        yield chunks_entry(bars)


def memory_entries(samples: Sequence[Sample]) -> Iterator[LegendEntry]:
    """The kinds of memory, and memory that is not stored."""
    kinds = [kind for kind in palette.KINDS if any(sum(getattr(sample, kind)) for sample in samples)]
    yield from squares([(KIND_NAMES[kind], palette.KINDS[kind]) for kind in kinds])
    if any(share.hidden for sample in samples for share in sample):
        frame = (0.0, 6.0, 24.0, ROW - 6)
        strokes = lines(hatch(*frame, gap=3.5), style(None, palette.INK, 0.8))
        yield worded(24, [box(*frame, style(palette.EMPTY)), strokes], "held only in a variable")


def squares(named: Sequence[tuple[str, str]]) -> Iterator[LegendEntry]:
    """Words with their colours, as one entry; empty without words."""
    parts: list[Diagram] = []
    x = 0.0
    for words, colour in named:
        parts += [
            box(x, 6, x + 14, ROW - 6, style(colour)),
            label(x + 19, ROW / 2, words, LEGEND_SIZE, palette.SOFT, "start"),
        ]
        x += 19 + text_width(words, LEGEND_SIZE) + 10
    if parts:
        yield LegendEntry(x, parts)


def operation_entry(mark: Mark, colouring: Colouring, words: str = "") -> LegendEntry:
    """An operation as it is drawn above, with its name or other words."""
    glyph = glyph_of(mark.op.name)
    width = glyph.sample or (28.0 if mark.stream else 20.0)  # in a communication stream, with its layer
    words = words or glyph.name
    if words == "forward":
        batches = clip(batches_text(mark.op.batches)[1:], 12)
        layer = "" if colouring.shows_batches else f"layer {mark.op.layer}, "
        words += f": {layer}microbatch{'es' if len(mark.op.batches) > 1 else ''} {batches}"
    return worded(width, draw_mark(mark, Frame(0, 2, width, ROW - 2), colouring), words)


def worded(width: float, parts: Sequence[Diagram], words: str) -> LegendEntry:
    text = label(width + 6, ROW / 2, words, LEGEND_SIZE, palette.SOFT, "start")
    return LegendEntry(width + 6 + text_width(words, LEGEND_SIZE), [*parts, text])


def swatches(what: str, numbers: Sequence[int], colour: Callable[[int], str]) -> LegendEntry:
    """A swatch per layer or microbatch, light as for forward and full as for backward."""
    parts = [label(0, ROW / 2, what, LEGEND_SIZE, palette.SOFT, "start")]
    x = text_width(what, LEGEND_SIZE) + 8
    for number in numbers:
        width = max(18.0, text_width(str(number), 10, bold=True) + 8)
        full = colour(number)
        parts.append(box(x, 4, x + width, ROW / 2, style(tinted(full)[0])))
        parts.append(box(x, ROW / 2, x + width, ROW - 4, style(full)))
        parts.append(label(x + width / 2, ROW / 2, str(number), 10, palette.text_on(full), bold=True))
        x += width + 2
    return LegendEntry(x, parts)


def chunks_entry(bars: Sequence[float]) -> LegendEntry:
    """The bars of a rank's chunks, from the first (no bar) to the last."""
    words = "bar: chunk of the rank, from first (none) to last"
    parts: list[Diagram] = []
    x = 0.0
    for length in thin_out(bars, MAX_LAYERS):
        frame = Frame(x, 4, x + 24, ROW - 4)
        parts += [box(*frame[:4], style(palette.EMPTY)), *draw_bar(length, frame, palette.INK)]
        x += 26
    return worded(x - 2, parts, words)


def shaded_text(steps: int) -> str:
    """What the shades behind the lanes mean, in a run of several steps."""
    return f"shaded: {'step 1' if steps == 2 else 'every second training step, from step 1 on'}"


def thin_out(numbers: Sequence[T], most: int) -> Sequence[T]:
    """All items; of more than `most`, the first, the last, and some evenly spaced in between."""
    last = len(numbers) - 1
    return numbers if last < most else [numbers[round(i * last / (most - 1))] for i in range(most)]


# --- The page ---

GLUE = "\u00a0"
"""A blank at which lines are not broken."""


class Timeline(Picture):
    """The picture of a run. It keeps the `scene`, so that it can be written in every format of a run."""

    def __init__(self, content: Diagram, title: str, scene: Scene, dark: bool = False) -> None:
        super().__init__(content, title, describe_run(scene), dark)
        self.scene = scene

    def in_text(self) -> str:
        return text_of(self.scene, self.title)


def draw(
    models_or_trace: RunLike,
    title: str = "",
    critical: bool = False,
    goal: Goal | None = None,
    dark: bool = False,
    judged: bool = True,
    colour: str = "layer",
) -> Timeline:
    """The timeline of a run, finished or not; prints its timesteps and its peak memory.

    `critical` marks the critical path. With a `goal`, the run is judged by the rules of a puzzle, and the picture
    shows the targets. `dark` is for dark slides. `judged=False` leaves out the referee's errors.

    `colour` is what the colours of operations show: 'layer', 'microbatch' or 'operation'. By microbatch and by
    operation, the first text in a box is its microbatch, as in papers on pipelines.

    Raises:
        RuleError: the models do not belong to one run.
        PuzzleError: there is no such `colour`.
    """
    scene = scene_from(models_or_trace, goal, colour)
    report = scene.report
    print(f"Timesteps: {time_text(report.timesteps)}")
    if scene.shows_memory:
        print(f"Maximum Memory: {report.peak.memory} at GPU: {report.peak.rank} time: {time_text(report.peak.time)}")
    return draw_scene(scene, title, critical, dark, judged)


def draw_scene(
    scene: Scene, title: str = "", critical: bool = False, dark: bool = False, judged: bool = True
) -> Timeline:
    """The timeline of a scene: header, lanes, memory, traffic, legend."""
    scale = Scale.of(scene)
    name = titled(clip(title, 80) or name_of(scene), scene.report)
    # What schedule this is, if the title does not say it, and its figures.
    known = [] if scene.known in name else wrap(scene.known, int(min(scale.width, 976) / (13 * EM)))
    notes = [*known, *summary_lines(scene.report, scale.width)]
    sections = [
        draw_header(name, notes, error_clauses(scene.report) if judged else [], scale.width),
        draw_lanes(scene, scale, critical),
        draw_memory(scene, scale),
        draw_traffic(scene, scale),
        draw_legend([scene], scale.width, critical),
    ]
    return Timeline(stack(sections), name, scene, dark)


def summary_lines(report: Report, width: float) -> list[str]:
    """The figures, wrapped to the width of the picture between two figures."""
    whole = summary(report).replace(" ", GLUE).replace(f"{GLUE}·{GLUE}", f"{GLUE}· ")
    lines = wrap(whole, int(min(width, 976) / (13 * EM)))
    return [line.replace(GLUE, " ").removesuffix(" ·") for line in lines]


def draw_header(name: str, notes: Sequence[str], wrong: Sequence[str], width: float) -> Diagram:
    """Title, figures, and errors, if any."""
    rows = [
        (name, 16.0, palette.INK, True),
        *((line, 13.0, palette.INK, False) for line in notes),
    ]
    for text in wrong:  # its first four lines
        lines = wrap(text, int(min(width, 976) / (12 * EM)))
        rows += [(line, 12.0, palette.ALARM, False) for line in (*lines[:4], *("…" for _ in lines[4:5]))]
    parts = []
    y = 0.0
    for text, size, colour, bold in rows:
        parts.append(label(0, y + size * 0.7, text, size, colour, "start", bold))
        y += size * 1.55
    return panel(width, y + 6, parts)


def draw_compare(
    mine: RunLike,
    reference: RunLike,
    title: str = "",
    names: tuple[str, str] = ("yours", "reference"),
    critical: bool = False,
    goal: Goal | None = None,
    dark: bool = False,
    colour: str = "layer",
) -> Picture:
    """Two runs, one above the other, on the same scales of time, memory and traffic; the title states the difference.

    `critical`, `goal`, `dark` and `colour` are as in `draw`.

    Raises:
        RuleError: the models do not belong to one run.
        PuzzleError: there is no such `colour`.
    """
    scenes = [scene_from(run, goal, colour) for run in (mine, reference)]
    end = max(scene.end for scene in scenes)
    scales = [Scale.of(scene, end=end) for scene in scenes]
    most, most_sent = max(map(highest, scenes)), max(map(highest_traffic, scenes))
    name = clip(title, 80) or name_of(scenes[0])
    summed_up = difference(scenes[0].report, scenes[1].report, names)
    parts: list[Diagram] = [draw_header(name, [summed_up], [], scales[0].width)]
    for scene, scale, who in zip(scenes, scales, names, strict=True):
        notes = summary_lines(scene.report, scale.width)
        parts += [
            panel(scale.width, 12.0, []),
            draw_header(clip(who, 60), notes, [error_text(scene.report)], scale.width),
            draw_lanes(scene, scale, critical),
            draw_memory(scene, scale, most),
            draw_traffic(scene, scale, most_sent),
        ]
    parts.append(draw_legend(scenes, scales[0].width, critical))
    words = [f"{summed_up}.", *(f"{who}: {describe_run(scene)}" for scene, who in zip(scenes, names, strict=True))]
    return Picture(stack(parts), name, " ".join(words), dark)


def difference(mine: Report, other: Report, names: tuple[str, str]) -> str:
    """'yours, compared with reference: 1.2 steps more, 524,288 elements less, sends as many elements, ...'."""
    parts = [
        more_or_less(round(mine.timesteps - other.timesteps, 3), mine.costs.time_unit),
        more_or_less(mine.peak.memory - other.peak.memory, "elements"),
        *([f"sends {more_or_less(mine.traffic - other.traffic, 'elements')}"] if mine.traffic or other.traffic else []),
        more_or_less(round(100 * (mine.bubble - other.bubble), 1), "points of bubble"),
    ]
    return f"{names[0]}, compared with {names[1]}: {', '.join(parts)}"


def more_or_less(number: float, unit: str) -> str:
    """1.2 is '1.2 steps more', -5 is '5 steps less', 0 is 'as many steps'."""
    if not number:
        return f"as many {unit}"
    amount = f"{abs(number):,}" if isinstance(number, int) else time_text(abs(number))
    return f"{amount} {unit} {'more' if number > 0 else 'less'}"

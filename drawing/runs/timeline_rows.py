"""The upper half of a timeline: a lane per rank, links for messages, ties for collectives."""

from collections.abc import Iterator, Sequence

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import ALARM, CRITICAL, IDLE, IDLE_HATCH, INK, PAPER, SOFT, STEP, STEP_EDGE, STROKE, UNDER_WAY
from drawing.pen import Point, box, hatch, label, lines, panel, polygons, style, text_width, tooltip
from lib.communication.meetings import cycle_in

from .axis import AXIS_HEIGHT, LEFT, Scale, draw_axis, draw_grid, draw_row_label
from .captions import describe, describe_gap, has_ended, short_reason
from .glyphs import Frame, draw_mark
from .marks import Band, LaneMarks, Link, Mark, Tie
from .rows import MarkRow
from .scene import Scene

SIZE = 10.0


def draw_bands(scene: Scene, scale: Scale) -> Iterator[Diagram]:
    """The background of the lanes: a shade for every other step. Nothing in a run of one step."""
    for row, band, y0, y1 in places(scene, scale):
        if band.step % 2:
            words = f"{row.all}: step {band.step}, t={time_text(band.start)} to {time_text(band.end)}"
            yield tooltip(box(scale.x(band.start), y0, scale.x(band.end), y1, style(STEP)), words)
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
            yield label(scale.x(band.start) + 4, y, text, SIZE, SOFT, "start", bold=True)


WAIT_SIZE = 9.5


def draw_lanes(scene: Scene, scale: Scale, critical: bool = False) -> Diagram:
    """All ranks on a common time axis, with the critical path if requested."""
    height = scale.axis_height + scale.rows * scale.pitch
    back = [
        *draw_bands(scene, scale),
        *draw_axis(scale, AXIS_HEIGHT),
        *draw_grid(scale, AXIS_HEIGHT, height),
        label(scale.width, AXIS_HEIGHT - 8, "busy", 10, SOFT, "end"),
        *draw_ties(scene.rows.ties(scene.ties), scale),
    ]
    if not (any(lane.marks for lane in scene.lanes) or has_ended(scene)):
        middle = (scale.axis_height + height) / 2
        back.append(label((LEFT + scale.right) / 2, middle, "nothing has happened yet", 13, SOFT))
    rows = [part for row in scene.rows.every for part in draw_row(row, scene, scale)]
    links = [*draw_links(scene.rows.links(scene.links), scale), *draw_cycle(scene, scale)]
    path = draw_critical(scene, scale) if critical else []
    starts = [(scale.x(band.start), y0, y1) for _, band, y0, y1 in places(scene, scale) if band.start]
    borders = lines([[(x, y0), (x, y1)] for x, y0, y1 in starts], style(None, STEP_EDGE, 1.4))  # where a step begins
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
        yield label(scale.width, (y0 + y1) / 2, busy, size, SOFT, "end")


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
            yield label(LEFT - 8, middle, name, min(9.5, (y1 - y0) * 0.8), SOFT, "end")
        waiting = [
            [(scale.x(start), middle), (scale.x(end), middle)]
            for mark in lane.on(stream)
            for start, end in ((mark.called, mark.start), (mark.end, mark.awaited))
            if start is not None and end is not None and end > start
        ]
        yield lines(waiting, style(None, UNDER_WAY, 1.3, dash=(2.0, 2.0)))


def frame_of(mark: Mark, scene: Scene, scale: Scale) -> Frame:
    y0, y1 = row_of(mark.rank, mark.stream, scale)
    above = scene.rows.is_above(mark.partner, mark.rank)
    return Frame(scale.x(mark.start), y0, scale.x(mark.end), y1, -1 if above else 1, 0.5 if mark.stream else 1.0)


def draw_gaps(row: MarkRow, scene: Scene, scale: Scale, y0: float, y1: float) -> Iterator[Diagram]:
    """Idle time, pale and hatched, with the reason for the wait."""
    gaps = [gap for gap in row.lane.gaps if scale.x(gap.end) - scale.x(gap.start) >= 0.1]
    strokes = [stroke for gap in gaps for stroke in hatch(scale.x(gap.start), y0, scale.x(gap.end), y1, gap=9.0)]
    yield lines(strokes, style(None, IDLE_HATCH, 0.9))
    for gap in gaps:
        # On top of its hatching, so that the tooltip shows everywhere.
        pane = box(scale.x(gap.start), y0, scale.x(gap.end), y1, style(IDLE, opacity=0.5))
        yield tooltip(pane, describe_gap(gap, row.first, scene))
        words = short_reason(gap, scene)
        if scale.compute_pitch >= 25 and text_width(words, WAIT_SIZE) + 16 < scale.x(gap.end) - scale.x(gap.start):
            middle = (scale.x(gap.start) + scale.x(gap.end)) / 2
            yield label(middle, (y0 + y1) / 2, words, WAIT_SIZE, SOFT, halo=IDLE)


def draw_ties(ties: tuple[Tie, ...], scale: Scale) -> list[Diagram]:
    """Each collective: one vertical line through all its lanes."""
    uprights = []
    for tie in ties:
        x = scale.x((tie.start + tie.end) / 2) + aside(tie)
        first, last = (row_of(mark.rank, mark.stream, scale) for mark in (tie.members[0], tie.members[-1]))
        uprights.append([(x, first[0]), (x, last[1])])
    return [lines(uprights, style(None, STROKE, 2.0))]


def aside(tie: Tie) -> float:
    """The horizontal distance that separates the vertical lines of interleaved groups, such as {0, 4} and {1, 5}."""
    first, last = tie.members[0].rank, tie.members[-1].rank
    return 0.0 if last - first == len(tie.members) - 1 else 3.0 * (first % 4) - 4.5


def draw_links(links: tuple[Link, ...], scale: Scale) -> list[Diagram]:
    """Each message: from the tip of its send to the notch of its receive; dashed if it was never read."""
    received = [link_line(link, scale) for link in links if link.received is not None]
    lost = [link_line(link, scale) for link in links if link.received is None]
    strokes, heads = arrows(received, INK, 1.2)
    return [strokes, lines(lost, style(None, INK, 1.2, dash=(3, 3))), heads]


def draw_cycle(scene: Scene, scale: Scale) -> list[Diagram]:
    """A deadlock in a cycle: an arrow from each rank to the rank for which it waits, at their stuck calls."""
    waits = []
    for number, pair in enumerate(cycle_in(str(scene.report.error))):
        x = scale.x(scene.end) - 6.0 * (number + 1)
        start, end = ((x, sum(row_of(rank, 0, scale)) / 2) for rank in pair)
        waits.append((start, end))
    return arrows(waits, ALARM, 1.4)


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
    return [lines([points], style(None, PAPER, 5.5)), lines([points], style(None, CRITICAL, 3.0))] if points else []

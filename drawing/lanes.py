"""The upper half of a timeline: a lane for each rank, links for messages, ties for collectives."""

from __future__ import annotations

from collections.abc import Iterator

from chalk.types import Diagram

from .axis import AXIS_HEIGHT, LEFT, Scale, draw_axis, draw_grid, draw_rank_label
from .glyphs import Frame, batches_text, draw_mark, glyph_of
from .palette import IDLE, IDLE_HATCH, INK, SOFT, WIRE
from .pen import Point, corners, hatch, label, lines, look, panel, polygons, tip
from .reading import Lane, Link, Mark, Scene, Tie, plain


def draw_lanes(scene: Scene, scale: Scale) -> Diagram:
    """All ranks under a common time axis."""
    height = AXIS_HEIGHT + len(scene.lanes) * scale.pitch
    back = [
        *draw_axis(scale, AXIS_HEIGHT),
        *draw_grid(scale, AXIS_HEIGHT, height),
        label(scale.width, AXIS_HEIGHT - 8, "busy", 10, SOFT, "end"),
        *draw_ties(scene.ties, scale),
    ]
    if not any(lane.marks for lane in scene.lanes):
        middle = (AXIS_HEIGHT + height) / 2
        back.append(label((LEFT + scale.right) / 2, middle, "nothing has happened yet", 13, SOFT))
    rows = [part for lane in scene.lanes for part in draw_lane(lane, scene, scale)]
    return panel(scale.width, height, [*back, *rows, *draw_links(scene.links, scale)])


def top_of(rank: int, scale: Scale) -> float:
    return AXIS_HEIGHT + rank * scale.pitch + (scale.pitch - scale.lane) / 2


def draw_lane(lane: Lane, scene: Scene, scale: Scale) -> Iterator[Diagram]:
    """One rank: its label, where it waits, what it does, and how busy that makes it."""
    y0 = top_of(lane.rank, scale)
    y1 = y0 + scale.lane
    yield from draw_rank_label(scale, lane.rank, (y0 + y1) / 2)
    yield from draw_gaps(lane, scale, y0, y1)
    # What takes no time is drawn last, on top of its neighbours.
    for mark in sorted(lane.marks, key=lambda mark: mark.end == mark.start):
        shape, *text = draw_mark(mark, frame_of(mark, scale, y0, y1), scene.layers)
        yield tip(shape, describe(mark))
        yield from text
    if lane.rank % scale.label_every == 0:
        busy = f"{100 * scene.report.ranks[lane.rank].busy:.0f}%"
        size = min(11.0, max(8.0, scale.pitch * 0.45))
        yield label(scale.width, (y0 + y1) / 2, busy, size, SOFT, "end")


def frame_of(mark: Mark, scale: Scale, y0: float, y1: float) -> Frame:
    above = mark.partner is not None and mark.partner < mark.rank
    return Frame(scale.x(mark.start), y0, scale.x(mark.end), y1, -1 if above else 1)


def draw_gaps(lane: Lane, scale: Scale, y0: float, y1: float) -> list[Diagram]:
    """Idle time: pale and hatched, so that it is seen as something."""
    frames = [(scale.x(start), y0, scale.x(end), y1) for start, end in lane.gaps]
    frames = [frame for frame in frames if frame[2] - frame[0] >= 0.1]
    strokes = [stroke for frame in frames for stroke in hatch(*frame, gap=7.0)]
    return [
        polygons([corners(*frame) for frame in frames], look(IDLE)),
        lines(strokes, look(None, IDLE_HATCH, 0.8)),
    ]


def draw_ties(ties: tuple[Tie, ...], scale: Scale) -> list[Diagram]:
    """Each collective: one upright through all its lanes."""
    uprights = []
    for tie in ties:
        x = scale.x((tie.start + tie.end) / 2)
        uprights.append([(x, top_of(tie.first, scale)), (x, top_of(tie.last, scale) + scale.lane)])
    return [lines(uprights, look(None, WIRE, 2.0))]


def draw_links(links: tuple[Link, ...], scale: Scale) -> list[Diagram]:
    """Each message: from the tip of its send to the notch of its receive; dashed if nobody read it."""
    read = [link_line(link, scale) for link in links if link.received is not None]
    lost = [link_line(link, scale) for link in links if link.received is None]
    heads = [arrowhead(*line) for line in read]
    return [
        lines(read, look(None, INK, 1.2)),
        lines(lost, look(None, INK, 1.2, dash=(3, 3))),
        polygons(heads, look(INK)),
    ]


def link_line(link: Link, scale: Scale) -> tuple[Point, Point]:
    x0 = scale.x(link.sent)
    x1 = scale.x(link.received) if link.received is not None else x0
    y0, y1 = top_of(link.source, scale), top_of(link.target, scale)
    if link.target > link.source:
        return (x0, y0 + scale.lane), (x1, y1)
    return (x0, y0), (x1, y1 + scale.lane)


def arrowhead(start: Point, end: Point) -> list[Point]:
    """A small head at the end of a line, along it."""
    (x0, y0), (x1, y1) = start, end
    length = ((x1 - x0) ** 2 + (y1 - y0) ** 2) ** 0.5 or 1.0
    ux, uy = (x1 - x0) / length * 5, (y1 - y0) / length * 5
    return [(x1, y1), (x1 - ux - uy / 2, y1 - uy + ux / 2), (x1 - ux + uy / 2, y1 - uy - ux / 2)]


def describe(mark: Mark) -> str:
    """A mark in words: what, where, when, and how much memory the rank had then."""
    op = mark.op
    words = [glyph_of(op.name).name]
    if op.layer is not None:
        words.append(f"layer {op.layer}")
    if op.batches:
        words.append(batches_text(op.batches))
    if mark.partner is not None:
        words.append(f"{'to' if op.name == 'pass_to' else 'from'} rank {mark.partner}")
    memory = "" if mark.memory is None else f", {mark.memory:,} elements"
    return f"rank {mark.rank}: {' '.join(words)}, t={plain(mark.start)} to {plain(mark.end)}{memory}"

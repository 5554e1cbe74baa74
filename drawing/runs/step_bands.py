"""Training steps in a timeline: every other step is shaded, row by row; above the first are their numbers."""

from collections.abc import Iterator

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import SOFT, STEP, STEP_EDGE
from drawing.pen import box, label, lines, style, text_width, tooltip

from .axis import AXIS_HEIGHT, Scale
from .marks import Band
from .rows import MarkRow
from .scene import Scene

SIZE = 10.0

Place = tuple[MarkRow, Band, float, float]
"""A band of a row, with its top and bottom."""


def draw_bands(scene: Scene, scale: Scale) -> Iterator[Diagram]:
    """What lies behind the lanes: the shade of every other step. Nothing in a run of one step."""
    for row, band, y0, y1 in places(scene, scale):
        if band.step % 2:
            words = f"{row.all}: step {band.step}, t={time_text(band.start)} to {time_text(band.end)}"
            yield tooltip(box(scale.x(band.start), y0, scale.x(band.end), y1, style(STEP)), words)
    if scene.steps > 1:
        yield from draw_numbers(scene.lanes[0].bands(0, scene.end), scale)


def draw_borders(scene: Scene, scale: Scale) -> Diagram:
    """What lies on the lanes: a line where a step begins."""
    starts = [(scale.x(band.start), y0, y1) for _, band, y0, y1 in places(scene, scale) if band.start]
    return lines([[(x, y0), (x, y1)] for x, y0, y1 in starts], style(None, STEP_EDGE, 1.4))


def places(scene: Scene, scale: Scale) -> Iterator[Place]:
    """Every band that has a length."""
    for number, row in enumerate(scene.rows.every):
        for stream in range(len(scene.streams)):
            edges = edges_of(number, stream, scale)
            for band in row.lane.bands(stream, scene.end):
                if band.end > band.start:
                    yield row, band, *edges


def edges_of(row: int, stream: int, scale: Scale) -> tuple[float, float]:
    """Top and bottom of a stream of a row, with margins, so that all rows touch; the first reaches up to the axis."""
    top = scale.axis_height + row * scale.pitch
    first = top + (scale.pitch - scale.lane) / 2
    y0 = first + scale.row(stream)[0] if stream else top if row else AXIS_HEIGHT
    y1 = first + scale.row(stream + 1)[0] if stream + 1 < scale.streams else top + scale.pitch
    return y0, y1


def draw_numbers(bands: list[Band], scale: Scale) -> Iterator[Diagram]:
    """'step 1' at the start of each band that is wide enough, or its number alone."""
    y = (AXIS_HEIGHT + scale.axis_height) / 2 - 2
    for band in bands:
        room = scale.x(band.end) - scale.x(band.start) - 6
        text = next((t for t in (f"step {band.step}", str(band.step)) if text_width(t, SIZE, bold=True) <= room), "")
        if text:
            yield label(scale.x(band.start) + 4, y, text, SIZE, SOFT, "start", bold=True)

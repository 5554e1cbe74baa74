"""The lower half of a timeline: memory of each rank as one continuous step line, on a common scale."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chalk.types import Diagram

from .axis import LEFT, Scale, draw_grid, draw_rank_label
from .palette import ALARM, GRID, INK, MEMORY, MEMORY_AREA, PAPER, SOFT
from .pen import Point, label, lines, look, panel, polygon, polygons, text_width, tip
from .reading import Lane, Scene, plain

HEAD = 30.0
FILLED = 0.78
"""Share of a rank's strip that the highest memory takes; the rest keeps the ranks apart."""


def draw_memory(scene: Scene, scale: Scale) -> Diagram:
    """Memory of all ranks, with the peak marked."""
    height = HEAD + len(scene.lanes) * scale.memory_pitch
    most = max((m for lane in scene.lanes for *_, m in lane.memory), default=0)
    heading = f"memory in elements, all ranks on one scale up to {most:,}"
    parts = [
        label(LEFT, HEAD - 14, heading, 11, SOFT, "start"),
        label(scale.width, HEAD - 14, "most", 10, SOFT, "end"),
        *draw_grid(scale, HEAD, height),
        *(part for lane in scene.lanes for part in draw_lane_memory(lane, most, scale)),
        *draw_peak(scene, most, scale),
    ]
    return panel(scale.width, height, parts)


def floor_of(rank: int, scale: Scale) -> float:
    return HEAD + (rank + 1) * scale.memory_pitch


def height_of(memory: int, most: int, scale: Scale) -> float:
    return FILLED * scale.memory_pitch * memory / most if most else 0.0


def draw_lane_memory(lane: Lane, most: int, scale: Scale) -> Iterator[Diagram]:
    floor = floor_of(lane.rank, scale)
    yield lines([[(LEFT, floor), (scale.right, floor)]], look(None, GRID))
    yield from draw_rank_label(scale, lane.rank, floor - scale.memory_pitch / 2)
    if not lane.memory:
        return
    line = step_line(lane, most, scale, floor)
    here = max(m for *_, m in lane.memory)
    area = [(line[0][0], floor), *line, (line[-1][0], floor)]
    yield tip(polygon(area, look(MEMORY_AREA)), f"rank {lane.rank}: at most {here:,} elements")
    yield lines([line], look(None, MEMORY, 1.3))
    if lane.rank % scale.label_every == 0:
        size = min(11.0, max(8.0, scale.pitch * 0.45))
        yield label(scale.width, floor - scale.memory_pitch / 2, short(here), size, SOFT, "end")


def step_line(lane: Lane, most: int, scale: Scale, floor: float) -> list[Point]:
    points: list[Point] = []
    for start, end, memory in lane.memory:
        y = floor - height_of(memory, most, scale)
        if points and points[-1][1] == y:
            points.pop()
        else:
            points.append((scale.x(start), y))
        points.append((scale.x(end), y))
    return points


def draw_peak(scene: Scene, most: int, scale: Scale) -> Sequence[Diagram]:
    """Who needs the most, and when."""
    peak = scene.report.peak
    if not peak.memory:
        return []
    x, y = scale.x(peak.time), floor_of(peak.rank, scale) - height_of(peak.memory, most, scale)
    text = f"peak {peak.memory:,}"
    fits = x + 8 + text_width(text, 11, bold=True) < scale.right
    anchor, shift = ("start", 7) if fits else ("end", -7)
    dot = [(x, y - 4), (x + 4, y), (x, y + 4), (x - 4, y)]
    return [
        polygons([dot], look(ALARM, PAPER, 0.8)),
        tip(
            label(x + shift, y - 9, text, 11, INK, anchor, bold=True, halo=PAPER),
            f"peak: {peak.memory:,} elements on rank {peak.rank} at t={plain(peak.time)}",
        ),
    ]


def short(elements: int) -> str:
    """2,359,296 is '2.36M', 4,096 is '4.1k'."""
    for size, unit in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if elements >= size:
            return f"{elements / size:.3g}{unit}"
    return str(elements)

"""Scale and axis: pixels per step, per lane and per strip of memory; round times along the axis."""

from dataclasses import dataclass
from typing import Any, Self

from chalk.types import Diagram

from drawing.number_text import time_text
from drawing.palette import GRID, SOFT
from drawing.pen import label, lines, style, text_width
from lib import COMPUTING

from .rows import MarkRow
from .scene import Scene

LEFT, RIGHT = 62.0, 54.0
NOTEBOOK_WIDTH = 976.0
"""Width that fits a notebook, without the margin."""
MIN_STEP_WIDTH = 12.0
"""A long run widens the picture instead of making a step narrower than this."""
MAX_WIDTH = 8000.0
MAX_STEP_WIDTH = 200.0
"""A short run does not fill the width with one operation."""
AXIS_HEIGHT = 20.0
STEPS_HEIGHT = 18.0
"""The height below the axis for the numbers of the training steps."""
LANE_SCALE = 0.45
"""Height of a communication stream, as a share of the height of computation."""


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
        return self.wide or min(max(NOTEBOOK_WIDTH - LEFT - RIGHT, self.end / self.step * MIN_STEP_WIDTH), MAX_WIDTH)

    @property
    def width(self) -> float:
        return LEFT + self.time_width + RIGHT

    @property
    def right(self) -> float:
        return LEFT + self.time_width

    @property
    def axis_height(self) -> float:
        return AXIS_HEIGHT + (STEPS_HEIGHT if self.steps > 1 else 0.0)

    @property
    def pitch(self) -> float:
        """The distance between lanes: half as much more for each communication stream."""
        return self.compute_pitch * (1 + LANE_SCALE * (self.streams - 1))

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

    @property
    def label_every(self) -> int:
        """Only every n-th lane gets a label if they are too close for all."""
        return max(1, -(-9 // int(self.pitch)))

    def is_labelled(self, row: MarkRow) -> bool:
        return self.places[row.lane.rank] % self.label_every == 0

    @property
    def span(self) -> float:
        """The steps that fill the width: the run, or more if it is short."""
        return max(self.end, self.time_width / MAX_STEP_WIDTH * self.step)

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
    numbers = [label(scale.x(t), y - 8, time_text(t), 10, SOFT) for t in grid_times(scale)]
    return [*numbers, label(LEFT - 8, y - 8, scale.unit, 10, SOFT, "end")]


def draw_grid(scale: Scale, y0: float, y1: float) -> list[Diagram]:
    """A thin line at each tick, behind everything."""
    return [lines([[(scale.x(t), y0), (scale.x(t), y1)] for t in grid_times(scale)], style(None, GRID))]


def draw_row_label(scale: Scale, row: MarkRow, y: float) -> list[Diagram]:
    if not scale.is_labelled(row):
        return []
    size = min(12.0, max(8.0, scale.compute_pitch * 0.5), (LEFT - 8) / text_width(row.label, 1.0))
    return [label(LEFT - 8, y, row.label, size, SOFT, "end")]

"""Picture of a value in its network: layers as columns, and slots between them for what flows from one to the next.

A value shaped like a weight is in its layer's column, an activation in the slot before the layer that reads it, and the
gradient of an activation at the output of the layer whose backward consumes it. Weights and activations are plain,
their gradients hatched, optimizer states dotted.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from chalk.types import Diagram

from drawing.palette import EDGE, EMPTY, GRID, INK, PAPER, SOFT, STROKE, layer_colour, layer_tint, mix
from drawing.pen import box, corners, dots, hatch, label, lines, panel, polygons, style
from lib import Activation, ActivationGrad, OptState, Value, Weight, WeightGrad

HEIGHT = 44.0
HEAD, FOOT = 14.0, 14.0
"""Above the columns for the mark, below for the layers' numbers."""
COLUMN, SLOT = 22.0, 14.0
MAX_WIDTH = 420.0
MIN_BAND = 2.0
MAX_RULED_PARTS = 16
"""Up to this many parts, each has its own line."""


class Held(NamedTuple):
    """The drawing of one value: `place` counts slots and columns from the left, slot 0 first, so layer l is
    column 2l + 1 and its output is slot 2l + 2. `parts` of `total` are shards from the top, or batches."""

    mark: str
    place: int
    parts: Collection[int]
    total: int
    pattern: str
    batches: tuple[Collection[int], int] | None = None
    """For a weight gradient: the batches that it sums, and the total."""
    feeds: int = 0
    """-1 if the layer on the left consumes it, 1 if the one on the right, 0 if it belongs to its layer."""


def held(value: Value) -> Held:
    """The place of a value, and its parts."""
    column = 2 * value.layer + 1
    match value:
        case Weight(step=step):
            return Held("W" + "'" * min(step, 3), column, value.shards, value.total, "plain")
        case OptState(step=step):
            return Held("opt" + "'" * min(step, 3), column, value.shards, value.total, "dots")
        case WeightGrad():
            sums = (value.batches, value.total_batches)
            return Held("∇W", column, value.shards, value.total, "hatch", batches=sums)
        case Activation():
            feeds = 1 if value.layer < value.layers else 0
            return Held("A", column - 1, value.batches, value.total_batches, "plain", feeds=feeds)
        case ActivationGrad():
            feeds = -1 if value.layer >= 0 else 0
            return Held("∇A", column + 1, value.batches, value.total_batches, "hatch", feeds=feeds)
    raise TypeError(f"no drawing for {type(value).__name__}")


@dataclass(frozen=True)
class Columns:
    """The positions of slots and columns, in pixels. If there are many, only the marked one has its full width."""

    layers: int
    place: int

    @property
    def shrink(self) -> float:
        """How much narrower than full all places are, if all have the same width."""
        return min(1.0, MAX_WIDTH / (self.layers * (COLUMN + SLOT) + SLOT))

    @property
    def uniform(self) -> bool:
        return self.shrink > 0.55

    @property
    def unit(self) -> float:
        """Width of an unmarked place, if there are too many for full width."""
        return (MAX_WIDTH - COLUMN - 2 * SLOT) / (2 * self.layers + 1)

    def left(self, place: int) -> float:
        if self.uniform:
            return ((place + 1) // 2 * SLOT + place // 2 * COLUMN) * self.shrink
        wider = self.span - self.unit if place > self.place else 0.0
        return place * self.unit + wider + (SLOT if place >= self.place else 0)

    def right(self, place: int) -> float:
        if self.uniform:
            return self.left(place + 1)
        return self.left(place) + (self.span if place == self.place else self.unit)

    @property
    def span(self) -> float:
        return COLUMN if self.place % 2 else SLOT

    @property
    def width(self) -> float:
        return self.left(2 * self.layers + 1) + (0 if self.uniform else SLOT)


def draw_strip(value: Value) -> Diagram:
    """The outline of the network, with what the value holds."""
    what = held(value)
    columns = Columns(value.layers, what.place)
    parts = [
        *draw_outline(columns),
        *draw_numbers(columns),
        *draw_held(what, value, columns),
    ]
    return panel(columns.width, HEAD + HEIGHT + FOOT + (8 if what.batches else 0), parts)


def draw_outline(columns: Columns) -> list[Diagram]:
    """All layers, pale, and a line through the middle for what flows."""
    middle = HEAD + HEIGHT / 2
    flow = lines([[(0, middle), (columns.width, middle)]], style(None, EDGE))
    if columns.unit < 0.5 and not columns.uniform:
        blocks = [(columns.left(1), columns.right(2 * columns.layers - 1))]
    else:
        blocks = [(columns.left(2 * i + 1), columns.right(2 * i + 1)) for i in range(columns.layers)]
    boxes = [corners(x0, HEAD, x1, HEAD + HEIGHT) for x0, x1 in blocks]
    return [flow, polygons(boxes, style(EMPTY, EDGE, 0.8) if columns.uniform else style(GRID))]


def draw_numbers(columns: Columns) -> Iterator[Diagram]:
    """The layers' numbers: all if there is room, otherwise the first, the last, and the relevant one."""
    marked = min(max((columns.place - 1) // 2, 0), columns.layers - 1)
    shown = range(columns.layers) if columns.uniform else sorted({0, marked, columns.layers - 1})
    last = -1e9
    for layer in shown:
        x = (columns.left(2 * layer + 1) + columns.right(2 * layer + 1)) / 2
        if x - last >= 18 or columns.uniform:
            yield label(x, HEAD + HEIGHT + 8, str(layer), 9, SOFT)
            last = x


def draw_held(what: Held, value: Value, columns: Columns) -> Iterator[Diagram]:
    x0, x1 = columns.left(what.place), columns.right(what.place)
    y0, y1 = HEAD, HEAD + HEIGHT
    layer = min(max(value.layer, 0), value.layers - 1)
    full, tint = layer_colour(layer, value.layers), layer_tint(layer, value.layers)
    runs = [band(y0, i / what.total, j / what.total) for i, j in runs_of(what.parts)]
    yield box(x0, y0, x1, y1, style(PAPER, INK, 1.2))
    yield polygons([corners(x0, a, x1, b) for a, b in runs], style(full if what.pattern == "plain" else tint))
    strong = mix(full, INK, 0.25)
    if what.pattern == "dots":
        yield polygons([dot for a, b in runs for dot in dots(x0, a, x1, b)], style(strong))
    elif what.pattern == "hatch":
        yield lines([s for a, b in runs for s in hatch(x0, a, x1, b, 5.0)], style(None, strong, 1.3))
    if 1 < what.total <= MAX_RULED_PARTS:
        cuts = [HEAD + HEIGHT * i / what.total for i in range(1, what.total)]
        yield lines([[(x0, y), (x1, y)] for y in cuts], style(None, INK, 0.6))
    yield lines([[*corners(x0, y0, x1, y1), (x0, y0)]], style(None, INK, 1.2))
    yield label((x0 + x1) / 2, HEAD - 7, what.mark, 11, INK, bold=True)
    if what.feeds:  # an arrowhead into the layer that takes the value
        x, y = x1 if what.feeds > 0 else x0, HEAD + HEIGHT / 2
        yield polygons([[(x, y - 4), (x + 7 * what.feeds, y), (x, y + 4)]], style(STROKE))
    if what.batches:
        yield from draw_batches(*what.batches, (x0 + x1) / 2, y1 + FOOT + 4)


def band(top: float, start: float, end: float) -> tuple[float, float]:
    """Start and end, for shares of the height; thin bands are widened to stay visible."""
    y0, y1 = top + HEIGHT * start, top + HEIGHT * end
    if y1 - y0 >= MIN_BAND:
        return y0, y1
    y0 = min(y0, top + HEIGHT - MIN_BAND)
    return y0, y0 + MIN_BAND


def draw_batches(batches: Collection[int], total: int, x: float, y: float) -> list[Diagram]:
    """A row of cells, one per batch; the summed batches are filled."""
    width = min(6.0 * total, 60.0)
    left, cell = max(0.0, x - width / 2), width / total
    filled = [corners(left + cell * i, y - 3, left + cell * j, y + 3) for i, j in runs_of(batches)]
    ruled = range(1, total) if total <= MAX_RULED_PARTS else ()
    cuts = [[(left + cell * i, y - 3), (left + cell * i, y + 3)] for i in ruled]
    rim = [*corners(left, y - 3, left + width, y + 3), (left, y - 3)]
    return [polygons(filled, style(INK)), lines([rim, *cuts], style(None, SOFT, 0.8))]


def runs_of(numbers: Collection[int]) -> Sequence[tuple[int, int]]:
    """{0, 1, 2, 5} as [(0, 3), (5, 6)]."""
    runs: list[tuple[int, int]] = []
    for i in sorted(numbers):
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    return runs

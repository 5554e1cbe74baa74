"""Pictures of values: one in its network of layers, a dictionary with its keys, everything that a model holds.

Layers are columns, with slots between them for what flows from one to the next. A value shaped like a weight is in its
layer's column, an activation in the slot before the layer that reads it, and the gradient of an activation at the
output of the layer whose backward consumes it. Weights and activations are plain, their gradients hatched, optimizer
states dotted. Importing this module gives every value its `draw` and its picture in notebooks.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from chalk.types import Diagram

from drawing.palette import EDGE, EMPTY, GRID, INK, PAPER, SOFT, STROKE, layer_colour, layer_tint, mix
from drawing.pen import (
    box,
    clip,
    corners,
    dots,
    hatch,
    label,
    lines,
    panel,
    polygons,
    stack,
    style,
    text_width,
    time_text,
)
from drawing.picture import Picture, svg
from lib import (
    Activation,
    ActivationGrad,
    Delta,
    Model,
    OptState,
    OuterState,
    PuzzleError,
    Scalar,
    Value,
    Weight,
    WeightGrad,
)
from lib.ledger.algebra import consecutive, counted

HEIGHT = 44.0
HEAD, FOOT = 14.0, 14.0
"""Height above the columns for the mark, and below them for the layers' numbers."""
COLUMN, SLOT = 22.0, 14.0
MAX_WIDTH = 420.0
MIN_BAND = 2.0
MAX_RULED_PARTS = 16
"""Up to this many parts are drawn with a line each."""


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
    """-1 if the left layer consumes it, 1 if the right one does, 0 if it belongs to its layer."""


def held(value: Value) -> Held:
    """The place of a value, and its parts."""
    column = 2 * value.layer + 1
    match value:
        case Weight(step=step):
            return Held("W" + "'" * min(step, 3), column, value.shards, value.total, "plain")
        case OptState(step=step) | OuterState(step=step):
            return Held("opt" + "'" * min(step, 3), column, value.shards, value.total, "dots")
        case Delta():
            return Held("ΔW", column, value.shards, value.total, "hatch")
        case WeightGrad():
            sums = (value.batches, value.total_batches)
            return Held("∇W", column, value.shards, value.total, "hatch", batches=sums)
        case Scalar():
            return Held("|∇W|", 2 * value.layers, value.shards, value.total, "hatch")
        case Activation():
            feeds = 1 if value.layer < value.layers else 0
            return Held("A", column - 1, value.batches, value.total_batches, "plain", feeds=feeds)
        case ActivationGrad():
            feeds = -1 if value.layer >= 0 else 0
            return Held("∇A", column + 1, value.batches, value.total_batches, "hatch", feeds=feeds)
    raise TypeError(f"no drawing for {type(value).__name__}")


@dataclass(frozen=True)
class Columns:
    """Positions of slots and columns, in pixels. If there are many, only the marked one has its full width."""

    layers: int
    place: int

    @property
    def shrink(self) -> float:
        """The factor by which all places are narrower than full, if all have the same width."""
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
    """The outline of the network, with the value's parts."""
    what = held(value)
    columns = Columns(value.layers, what.place)
    parts = [*draw_outline(columns), *draw_numbers(columns), *draw_held(what, value, columns)]
    return panel(columns.width, HEAD + HEIGHT + FOOT + (8 if what.batches else 0), parts)


def draw_outline(columns: Columns) -> list[Diagram]:
    """All layers, pale, and a line through the middle for activations."""
    middle = HEAD + HEIGHT / 2
    flow = lines([[(0, middle), (columns.width, middle)]], style(None, EDGE))
    if columns.unit < 0.5 and not columns.uniform:
        blocks = [(columns.left(1), columns.right(2 * columns.layers - 1))]
    else:
        blocks = [(columns.left(2 * i + 1), columns.right(2 * i + 1)) for i in range(columns.layers)]
    boxes = [corners(x0, HEAD, x1, HEAD + HEIGHT) for x0, x1 in blocks]
    return [flow, polygons(boxes, style(EMPTY, EDGE, 0.8) if columns.uniform else style(GRID))]


def draw_numbers(columns: Columns) -> Iterator[Diagram]:
    """The layers' numbers: all if there is room, else the first, the last, and the relevant one."""
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
    """A row of cells, one per batch; summed batches are filled."""
    width = min(6.0 * total, 60.0)
    left, cell = max(0.0, x - width / 2), width / total
    filled = [corners(left + cell * i, y - 3, left + cell * j, y + 3) for i, j in runs_of(batches)]
    ruled = range(1, total) if total <= MAX_RULED_PARTS else ()
    cuts = [[(left + cell * i, y - 3), (left + cell * i, y + 3)] for i in ruled]
    rim = [*corners(left, y - 3, left + width, y + 3), (left, y - 3)]
    return [polygons(filled, style(INK)), lines([rim, *cuts], style(None, SOFT, 0.8))]


def runs_of(numbers: Collection[int]) -> Sequence[tuple[int, int]]:
    """{0, 1, 2, 5} as [(0, 3), (5, 6)]."""
    return [(run[0], run[-1] + 1) for run in consecutive(numbers)]


KEY_SIZE, TEXT_SIZE = 12.0, 12.0
MAX_KEY_LENGTH, MAX_TEXT_LENGTH = 28, 90
MIN_WIDTH = 640.0
MAX_ROWS = 48
GAP = 18.0


def draw_value(value: Value) -> Picture:
    """One value in its network, and in words.

    Raises:
        PuzzleError: it is not a value of the game.
    """
    if not isinstance(value, Value):
        raise PuzzleError(f"draw_value shows a Weight, an Activation and so on; got {safe(repr, value)}")
    strip = draw_strip(value)
    words, size = caption(value), TEXT_SIZE
    width = max(strip.get_envelope().width, text_width(words, size))
    text = panel(width, size * 1.6, [label(0, size * 0.8, words, size, INK, "start")])
    return Picture(strip / text, str(value), words)


def draw_group(mapping: Mapping[Any, Any]) -> Picture:
    """Each value of a dictionary with its key.

    Raises:
        PuzzleError: it is not a dictionary.
    """
    return Picture(group(mapping), group_title(mapping), describe_group(mapping))


def draw_network(model: Model) -> Picture:
    """Everything that a model holds, by dictionary, and its final weights."""
    storages: list[Mapping[Any, Any]] = [*model.storage()]
    head = f"rank {model.rank}, t={time_text(model.time)}: {model.memory():,} elements stored"
    sections = [titled(head, 15.0), *(group(storage) for storage in storages)]
    if model.final_weights:
        sections.append(group(model.final_weights))
    return Picture(stack(sections), head, " ".join(describe_group(storage) for storage in storages))


def group(mapping: Mapping[Any, Any]) -> Diagram:
    """A heading and a row for each key; if there are very many, only the first ones."""
    if not isinstance(mapping, Mapping):
        got = safe(repr, mapping)
        raise PuzzleError(f"draw_group shows a dictionary of values, such as activations; got {got}")
    shown = list(islice(mapping.items(), MAX_ROWS))
    keys = [safe(repr, key, MAX_KEY_LENGTH) for key, _ in shown]
    pictures = [draw_strip(value) if isinstance(value, Value) else None for _, value in shown]
    key_width = max((text_width(key, KEY_SIZE, bold=True) for key in keys), default=0.0) + GAP
    strip_width = max((p.get_envelope().width for p in pictures if p is not None), default=0.0) + GAP
    words = [caption(value) for _, value in shown]
    text = max((text_width(line, TEXT_SIZE) for line in words), default=0.0)
    width = max(key_width + strip_width + text, MIN_WIDTH)
    rows = [value_row(*parts, key_width, strip_width, width) for parts in zip(keys, pictures, words, strict=True)]
    more = len(mapping) - len(shown)
    rest = [titled(f"and {more:,} more", TEXT_SIZE)] if more else []
    return stack([titled(group_title(mapping), 14.0), *rows, *rest])


def value_row(key: str, strip: Diagram | None, words: str, at: float, wide: float, width: float) -> Diagram:
    """Key, network, words, side by side, under a thin line."""
    height = 26.0 if strip is None else strip.get_envelope().height + 8
    middle = height / 2
    parts = [
        lines([[(0, 0), (width, 0)]], style(None, EDGE, 0.5)),
        label(0, middle, key, KEY_SIZE, INK, "start", bold=True),
        *([] if strip is None else [strip.translate(at, 5)]),
        label(at + (wide if strip is not None else 0), middle, words, TEXT_SIZE, SOFT, "start"),
    ]
    return panel(width, height, parts)


def titled(text: str, size: float) -> Diagram:
    width = text_width(text, size, bold=True)
    return panel(width, size * 1.9, [label(0, size * 0.8, text, size, INK, "start", bold=True)])


def group_title(mapping: Mapping[Any, Any]) -> str:
    """The dictionary's name, and the elements in it; a value under two keys counts once."""
    name = safe(str, getattr(mapping, "name", "values"), MAX_KEY_LENGTH)
    if not mapping:
        return f"{name}: empty"
    sizes = {id(value): value.memory() for value in mapping.values() if isinstance(value, Value)}
    keys = counted(len(mapping), "key")
    return f"{name}: {keys}, {sum(sizes.values()):,} elements"


def caption(value: Any) -> str:
    """A value's description with its size; for other objects, the Python representation."""
    return f"{value} ({value.memory():,} elements)" if isinstance(value, Value) else safe(repr, value)


def describe_group(mapping: Mapping[Any, Any]) -> str:
    """Keys and captions, for screen readers."""
    shown: Iterable[tuple[Any, Any]] = islice(mapping.items(), MAX_ROWS)
    found = [f"{safe(repr, key, MAX_KEY_LENGTH)}: {caption(value)}" for key, value in shown]
    return "; ".join(found) or "nothing is stored"


def safe(show: Any, thing: Any, limit: int = MAX_TEXT_LENGTH) -> str:
    """A short text for anything that a player may store, even if its code raises errors."""
    try:
        return clip(show(thing), limit)
    except Exception:
        return f"<{type(thing).__name__}>"


# From here on a value draws itself, in a notebook too: `lib` works without pictures, and imports nothing of them.
Value.draw = draw_value  # type: ignore[assignment]
Value._repr_html_ = lambda value: str(svg(value.draw()))  # type: ignore[assignment]

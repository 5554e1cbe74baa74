"""The legend: an entry for each kind of mark in the picture, and the colours of layers or microbatches in order."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple, TypeVar

from chalk.types import Diagram

from drawing import palette
from drawing.pen import box, clip, hatch, label, lines, panel, style, text_width
from lib import Sample

from .captions import SHARED
from .colouring import Colouring, tinted
from .glyphs import LETTERED, Frame, batches_text, draw_bar, draw_mark, glyph_of, in_legend_order
from .marks import Mark
from .memory import KIND_NAMES, kind_text
from .scene import Scene

T = TypeVar("T")

ROW = 26.0
SIZE = 11.0
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
        parts += [box(x, 6, x + 14, ROW - 6, style(colour)), label(x + 19, ROW / 2, words, SIZE, palette.SOFT, "start")]
        x += 19 + text_width(words, SIZE) + 10
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
    text = label(width + 6, ROW / 2, words, SIZE, palette.SOFT, "start")
    return LegendEntry(width + 6 + text_width(words, SIZE), [*parts, text])


def swatches(what: str, numbers: Sequence[int], colour: Callable[[int], str]) -> LegendEntry:
    """A swatch per layer or microbatch, light as for forward and full as for backward."""
    parts = [label(0, ROW / 2, what, SIZE, palette.SOFT, "start")]
    x = text_width(what, SIZE) + 8
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

"""Glyphs of the operations: shapes that can be told apart without colour and without letters, at any width.

Forward points right, backward left, also as the half of it that makes the input gradient; the other half, which
nothing waits for but the update, is a box. A gather opens, a reduce-scatter closes, an all-reduce does both, and the
all-to-alls are a lozenge and its opposite; copies to and from a tier point down and up.
A send is a wedge whose tip is where the message leaves, a receive one whose tip is where it arrives.
The loss is a tag at the point where forward turns into backward.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from chalk.types import Diagram

from drawing.palette import PAPER, text_on
from drawing.pen import Point, box, hatch, label, lines, polygon, style, text_width
from lib import COMPUTING, halves

from . import outlines
from .colouring import HOLLOW, Colouring
from .marks import Mark
from .outlines import Frame, loss_tag


class Glyph(NamedTuple):
    """One kind of operation: its letter, its name in the legend, and its outline."""

    mark: str
    name: str
    outline: Callable[[Frame], Sequence[Point]]


GLYPHS: dict[str, Glyph] = {
    "forward": Glyph("F", "forward", outlines.forward_outline),
    "loss": Glyph("L", "loss", outlines.loss_outline),
    "backward": Glyph("B", "backward", outlines.backward_outline),
    "pair": Glyph("P", "forward and backward", outlines.pair_outline),
    "backward_input": Glyph("I", "input gradient", outlines.backward_input_outline),
    "backward_weight": Glyph("W", "weight gradient", outlines.box_outline),
    "keys": Glyph("K", "keys and values", outlines.keys_outline),
    "attend": Glyph("A", "attend", outlines.attend_outline),
    "attend_backward": Glyph("AB", "attend, backward", outlines.attend_backward_outline),
    "keys_backward": Glyph("KB", "keys, backward", outlines.keys_backward_outline),
    "update": Glyph("U", "update", outlines.update_outline),
    "allgather": Glyph("AG", "all-gather", outlines.gather_outline),
    "scatterreduce": Glyph("RS", "reduce-scatter", outlines.scatter_outline),
    "allreduce": Glyph("AR", "all-reduce", outlines.allreduce_outline),
    "dispatch": Glyph("DI", "dispatch (all-to-all)", outlines.lozenge_outline),
    "collect": Glyph("CO", "collect (all-to-all)", outlines.waisted_outline),
    "heads": Glyph("HD", "tokens to heads (all-to-all)", outlines.heads_outline),
    "tokens": Glyph("TK", "heads to tokens (all-to-all)", outlines.tokens_outline),
    "offload": Glyph("OF", "offload", outlines.down_outline),
    "fetch": Glyph("FE", "fetch", outlines.up_outline),
    "pass_to": Glyph("S", "send", outlines.send_outline),
    "receive": Glyph("R", "receive", outlines.receive_outline),
}
"""In the order of the legend."""


def glyph_of(name: str) -> Glyph:
    """The glyph of an operation; an unknown one is a box with its initials."""
    return GLYPHS.get(name) or Glyph(name[:2].upper(), name, outlines.box_outline)


def in_legend_order(operations: Iterable[str]) -> list[str]:
    """Names of operations, each once: first those with a glyph, in the order of GLYPHS, then all others by name."""
    found = set(operations)
    return [name for name in GLYPHS if name in found] + sorted(found - set(GLYPHS))


def draw_mark(mark: Mark, frame: Frame, colouring: Colouring) -> list[Diagram]:
    """One operation: its shape, the bar of its chunk, and as much of its text as fits."""
    if mark.op.name == "pair":  # one bar, cut along its length
        _, y = frame.middle
        frames = frame._replace(y1=y), frame._replace(y0=y)
        return [
            part for op, own in zip(halves(mark.op), frames) for part in draw_mark(mark._replace(op=op), own, colouring)
        ]
    glyph = glyph_of(mark.op.name)
    fill, stroke, width = colouring.paint(mark)
    if frame.width <= 3:  # too narrow for a border; a hollow shape is drawn as its border only
        fill, width = (stroke if width >= HOLLOW else fill), 0.0
    shape = polygon(glyph.outline(frame), style(fill, stroke, width))
    ink = text_on(fill)
    bar = draw_bar(colouring.bar(mark), frame, ink)
    return [shape, *hatch_again(mark, frame), *bar, *draw_text(mark, glyph, frame, ink, colouring)]


def draw_bar(share: float, frame: Frame, colour: str) -> Iterator[Diagram]:
    """A bar along the bottom of a box, over a share of its width."""
    inset, high = min(5.0, frame.width / 4), min(2.0, frame.height / 8)
    if share:
        end = frame.x0 + inset + (frame.width - 2 * inset) * share
        yield box(frame.x0 + inset, frame.y1 - 2 * high, end, frame.y1 - high, style(colour))


def hatch_again(mark: Mark, frame: Frame) -> Iterator[Diagram]:
    """Strokes over what is computed again; fine ones over what is computed with old weights."""
    inset = min(5.0, frame.width / 4)
    if (mark.again or mark.old) and frame.width > 3:
        strokes = hatch(frame.x0 + inset, frame.y0, frame.x1 - inset, frame.y1, gap=5.0)
        yield lines(strokes, style(None, PAPER, 1.6 if mark.again else 0.7))


def draw_text(mark: Mark, glyph: Glyph, frame: Frame, colour: str, colouring: Colouring) -> list[Diagram]:
    """The first wording that fits in legible letters."""
    for rows in wordings(mark, glyph, frame, colouring):
        height = frame.height / (len(rows) + 0.35)
        room = frame.width - min(PADDING.get(mark.op.name, 4.5), frame.width / 2)
        sizes = [fitting(line, room, min(largest, height * 0.92)) for line, largest in rows]
        if all(sizes):
            x, y = text_place(mark.op.name, frame)
            gap = min(height, max(sizes) * 1.2)
            return [
                label(x, y + (i - (len(rows) - 1) / 2) * gap, line, size, colour, bold=not i)
                for i, ((line, _), size) in enumerate(zip(rows, sizes, strict=True))
            ]
    return []


LETTERED = COMPUTING | {"update"}
"""The operations whose layer is part of their text."""
PADDING = {
    "forward": 8.0,
    "backward": 8.0,
    "backward_input": 8.0,
    "backward_weight": 8.0,
    "update": 5.0,
    "loss": -11.0,
    "pass_to": 2.0,
    "receive": 2.0,
}
"""Pixels of a frame's width that the shape uses, so that the text cannot."""

Line = tuple[str, float]
"""Text and its largest size; the first line of several is bold."""


def wordings(mark: Mark, glyph: Glyph, frame: Frame, colouring: Colouring) -> Iterator[list[Line]]:
    """Texts for a mark, longest first."""
    letters, name = glyph.mark, mark.op.name
    if name in COMPUTING and mark.op.batches and colouring.shows_batches:
        yield from batch_wordings(mark, letters, frame, colouring)
    elif name in LETTERED:
        layer, batches = mark.layer_text, batches_text(mark.op.batches)
        if batches and frame.height >= 26:
            yield [(letters + layer, 13), (batches, 11)]
        yield [(f"{letters}{layer} {batches}".rstrip(), 12)]
        if batches and mark.rank not in colouring.varied and name in COMPUTING:
            yield from batch_wordings(mark, letters, frame, colouring)  # the layer is the same all along the lane
        elif batches:
            yield [(letters + layer, 12)]
        yield [(letters, 11), (layer, 10)]
        yield [(letters, 12)]
    elif name == "loss":
        yield [(letters, 9)]
    elif name in ("pass_to", "receive"):
        if frame.height >= 18:
            yield [(letters, 7.5)]
    else:
        if mark.stream and mark.op.layer is not None:
            yield [(f"{letters}{mark.op.layer}", 9)]
        yield [(letters, 10)]
        if frame.height >= 24:
            yield [(letter, 9) for letter in letters]


def batch_wordings(mark: Mark, letters: str, frame: Frame, colouring: Colouring) -> Iterator[list[Line]]:
    """Texts that keep the microbatch, as in the papers; its digits one below the other if need be."""
    batches = batches_text(mark.op.batches)[1:]
    if frame.height >= 26:
        yield [(batches, 13), (letters + colouring.layer_text(mark), 10)]
    yield [(batches, 12)]
    if batches.isdecimal() and frame.height >= 8 * len(batches):
        yield [(digit, 9) for digit in batches]
    yield [(letters, 12)]


def text_place(name: str, frame: Frame) -> Point:
    """The middle of the text: of the frame, or of the part of it that the shape fills."""
    x, y = frame.middle
    if name == "loss":
        top, bottom = loss_tag(frame)
        return x, (top + bottom) / 2
    if name in ("pass_to", "receive"):
        aside = 0.12 if name == "pass_to" else -0.12
        return x + frame.width * aside, y - frame.toward * (frame.height / 2 - 5)
    return x, y


def fitting(text: str, room: float, size: float, least: float = 7.0) -> float:
    """The font size, at most `size`, at which `text` fits; 0 if that would be too small to read."""
    size = min(size, room / max(text_width(text, 1.0, bold=True), 0.1))
    return round(size, 1) if size >= least else 0.0


def batches_text(batches: frozenset[int]) -> str:
    """{0, 1, 2, 3} is 'b0-3', {2} is 'b2', {0, 2} is 'b0,2'."""
    numbers = sorted(batches)
    if not numbers:
        return ""
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"b{numbers[0]}-{numbers[-1]}"
    return "b" + ",".join(map(str, numbers))

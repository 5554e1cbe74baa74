"""Glyphs of the operations: shapes that differ without colour and without letters, at any width.

Forward points right, backward left, as does its half that makes the input gradient; the other half, for which only the
update waits, is a box. A gather opens, a reduce-scatter closes, an all-reduce does both; a
broadcast opens from a point and a reduce closes to one; the all-to-alls are a lozenge
and its opposite; copies to and from a tier point down and up. A send is a wedge whose tip is where the message leaves,
a receive one whose tip is where it arrives. The loss is a tag where forward turns into backward.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from chalk.types import Diagram

from drawing.palette import PAPER, text_on
from drawing.pen import Point, box, corners, hatch, label, lines, polygon, style, text_width
from drawing.scene import HOLLOW, Colouring, Mark
from lib import COMPUTING, halves


class Frame(NamedTuple):
    """The box of an operation, in pixels. `toward` is -1 if its partner's lane is above, 1 if below."""

    x0: float
    y0: float
    x1: float
    y1: float
    toward: int = 1
    slant: float = 1.0
    """How far a collective's shape narrows: less in a low row, so that its letters keep their room."""

    @property
    def width(self) -> float:
        return self.x1 - self.x0

    @property
    def height(self) -> float:
        return self.y1 - self.y0

    @property
    def middle(self) -> Point:
        return (self.x0 + self.x1) / 2, (self.y0 + self.y1) / 2


Outline = Callable[[Frame], Sequence[Point]]


class Glyph(NamedTuple):
    """One kind of operation: its letters, its name in the legend, and its outline."""

    mark: str
    name: str
    outline: Outline
    letter: str = ""
    """The letter in a text for an operation that is too short for its own; if empty, its first letter."""
    padding: float = 4.5
    """Pixels of a frame's width that the shape takes from the text."""
    sample: float = 0.0
    """The width of the sample in the legend, if it is unusual."""


def outline(points: str, inset: float = 4, depth: float = 0.32) -> Outline:
    """The corners of a shape, each two letters. Across: `l` and `r` are the sides of the frame, `L` and `R` lie up to
    five pixels within, at most an `inset`-th of the width; `c` is the centre. Down: `t` and `b` are top and bottom, `T`
    and `B` lie within by a share of the height, `u` and `d` by 0.3 of it; `m` is the middle, `n` and `f` are near the
    rank itself and far from it, toward its partner."""

    def shape(f: Frame) -> list[Point]:
        (x, y), n, d, u = f.middle, min(5.0, f.width / inset), f.height * depth * f.slant, f.height * 0.3
        near, far = (f.y0, f.y1) if f.toward > 0 else (f.y1, f.y0)
        xs = {"l": f.x0, "L": f.x0 + n, "c": x, "R": f.x1 - n, "r": f.x1}
        ys = {"t": f.y0, "T": f.y0 + d, "u": f.y0 + u, "m": y, "d": f.y1 - u, "B": f.y1 - d, "b": f.y1}
        ys |= {"n": near, "f": far}
        return [(xs[corner[0]], ys[corner[1]]) for corner in points.split()]

    return shape


forward_outline, backward_outline = outline("lt Rt rm Rb lb Lm"), outline("Lt rt Rm rb Lb lm")
box_outline = outline("lt rt rb lb")


def pair_outline(f: Frame) -> list[Point]:
    y = f.middle[1]
    return [*forward_outline(f._replace(y1=y)), *backward_outline(f._replace(y0=y))]


def update_outline(f: Frame) -> list[Point]:
    return corners(f.x0 + 0.8, f.y0 + 0.8, max(f.x0 + 1.2, f.x1 - 0.8), f.y1 - 0.8)


def loss_outline(f: Frame) -> list[Point]:
    """A tag on a pin: the loss takes no time, so it is on the border between its neighbours."""
    (x, _), w = f.middle, max(f.width, min(11.0, f.height * 0.42)) / 2
    top, bottom = loss_tag(f)
    tip, pin = min(bottom + w * 0.7, f.y1), 0.8
    return [
        (x - w, top), (x + w, top), (x + w, bottom), (x + pin, tip), (x + pin, f.y1 + 2),
        (x - pin, f.y1 + 2), (x - pin, tip), (x - w, bottom)
    ]  # fmt: skip


def loss_tag(f: Frame) -> tuple[float, float]:
    top = f.y0 - min(7.0, f.height * 0.2)
    return top, top + min(11.0, f.height * 0.5)


GLYPHS: dict[str, Glyph] = {
    "forward": Glyph("F", "forward", forward_outline, padding=8.0, sample=52.0),
    "loss": Glyph("L", "loss", loss_outline, "L", padding=-11.0, sample=14.0),
    "backward": Glyph("B", "backward", backward_outline, padding=8.0, sample=52.0),
    "pair": Glyph("P", "forward and backward", pair_outline),
    "backward_input": Glyph("I", "input gradient", outline("Lt rt rb Lb lm"), padding=8.0, sample=36.0),
    "backward_weight": Glyph("W", "weight gradient", box_outline, padding=8.0, sample=36.0),
    "keys": Glyph("K", "keys and values", outline("lt Rt rm Rb lb")),
    "attend": Glyph("A", "attend", outline("lt Rt rT rB Rb lb Lm")),
    "attend_backward": Glyph("AB", "attend, backward", outline("Lt rt Rm rb Lb lB lT")),
    "keys_backward": Glyph("KB", "keys, backward", outline("Lt rt rb Lb lB lT")),
    "update": Glyph("U", "update", update_outline, padding=5.0, sample=28.0),
    "outer_update": Glyph("OU", "outer update", outline("lT Lt Rt rT rb lb"), "O"),
    "allgather": Glyph("AG", "all-gather", outline("lT rt rb lB"), "<"),
    "scatterreduce": Glyph("RS", "reduce-scatter", outline("lt rT rB lb"), ">"),
    "allreduce": Glyph("AR", "all-reduce", outline("lt cT rt rb cB lb", depth=0.26), "x"),
    "broadcast": Glyph("BC", "broadcast", outline("lm ct rt rb cb"), "{"),
    "reduce": Glyph("RD", "reduce", outline("lt ct rm cb lb"), "}"),
    "dispatch": Glyph("DI", "dispatch (all-to-all)", outline("Lt Rt rm Rb Lb lm", inset=2), "d"),
    "collect": Glyph("CO", "collect (all-to-all)", outline("lt rt Rm rb lb Lm"), "c"),
    "heads": Glyph("HD", "tokens to heads (all-to-all)", outline("Lt rt Rb lb"), "h"),
    "tokens": Glyph("TK", "heads to tokens (all-to-all)", outline("lt Rt rb Lb"), "t"),
    "tier_update": Glyph("HU", "update on a tier", outline("lt rt rB Rb Lb lB"), "u"),
    "offload": Glyph("OF", "offload", outline("lt rt rd cb ld"), "v"),
    "fetch": Glyph("FE", "fetch", outline("lu ct ru rb lb"), "^"),
    "move": Glyph("MV", "move between tiers", outline("lu ct ru rd cb ld"), "m"),
    "pass_to": Glyph("S", "send", outline("ln rn rf"), "s", padding=2.0, sample=11.0),
    "receive": Glyph("R", "receive", outline("lf rn ln"), "r", padding=2.0, sample=11.0),
}
"""In the order of the legend."""


def glyph_of(name: str) -> Glyph:
    """The glyph of an operation; an unknown one is a box with its initials."""
    return GLYPHS.get(name) or Glyph(name[:2].upper(), name, box_outline)


def in_legend_order(operations: Iterable[str]) -> list[str]:
    """Names of operations, each once: first those with a glyph, in the order of GLYPHS, then the others by name."""
    found = set(operations)
    return [name for name in GLYPHS if name in found] + sorted(found - set(GLYPHS))


def draw_mark(mark: Mark, frame: Frame, colouring: Colouring) -> list[Diagram]:
    """One operation: its shape, the bar of its chunk, and as much text as fits."""
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
    """Strokes over recomputed operations, and fine strokes over operations with old weights."""
    inset = min(5.0, frame.width / 4)
    if (mark.again or mark.old) and frame.width > 3:
        strokes = hatch(frame.x0 + inset, frame.y0, frame.x1 - inset, frame.y1, gap=5.0)
        yield lines(strokes, style(None, PAPER, 1.6 if mark.again else 0.7))


def draw_text(mark: Mark, glyph: Glyph, frame: Frame, colour: str, colouring: Colouring) -> list[Diagram]:
    """Draws the first wording that fits in legible letters."""
    for rows in wordings(mark, glyph, frame, colouring):
        height = frame.height / (len(rows) + 0.35)
        room = frame.width - min(glyph.padding, frame.width / 2)
        sizes = [fitting(line, room, min(largest, height * 0.92)) for line, largest in rows]
        if all(sizes):
            x, y = text_place(mark.op.name, frame)
            gap = min(height, max(sizes) * 1.2)
            return [
                label(x, y + (i - (len(rows) - 1) / 2) * gap, line, size, colour, bold=not i)
                for i, ((line, _), size) in enumerate(zip(rows, sizes, strict=True))
            ]
    return []


LETTERED = COMPUTING | {"update", "tier_update", "outer_update"}
"""The operations whose layer is part of their text."""

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
    """Texts that keep the microbatch, as in papers; its digits may be one below the other."""
    batches = batches_text(mark.op.batches)[1:]
    if frame.height >= 26:
        yield [(batches, 13), (letters + colouring.layer_text(mark), 10)]
    yield [(batches, 12)]
    if batches.isdecimal() and frame.height >= 8 * len(batches):
        yield [(digit, 9) for digit in batches]
    yield [(letters, 12)]


def text_place(name: str, frame: Frame) -> Point:
    """The middle of the text: the middle of the frame, or of the part that the shape fills."""
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

"""Drawing primitives: flat chalk diagrams at their final coordinates; and numbers as short text.

Chalk renders quickly if it needs no envelopes, so a `panel` has its own: the box from (0, 0) to its width and height, y
downwards. In return, the parts of a panel are placed by hand instead of being composed by chalk.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from chalk.core import ApplyName, Compose, Primitive
from chalk.envelope import Envelope
from chalk.shapes import Path, Text
from chalk.style import Style, WidthType
from chalk.subdiagram import Name
from chalk.trail import Located, Trail
from chalk.transform import P2, V2, Affine, BoundingBox
from chalk.types import Diagram
from colour import Color


def time_text(steps: float) -> str:
    """19.9 is '19.9', 17.0 is '17', 13.05 is '13.05', 9498.0 is '9,498': exact, since every tick is a number of
    thousandths of a step."""
    return f"{steps:,.3f}".rstrip("0").rstrip(".")


def tenths_text(number: float) -> str:
    """19.9 is '19.9', 17.0 is '17'."""
    return f"{number:.1f}".removesuffix(".0")


def short_text(number: int) -> str:
    """2,359,296 is '2.36M', 4,096 is '4.1k'."""
    for size, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= size:
            return f"{number / size:.3g}{letter}"
    return str(number)


def round_step(is_enough: Callable[[float], bool], least: int = -1) -> float:
    """The smallest of the round numbers 1, 2, 5, 10, ... that is enough, from the power `least` of ten on."""
    return next(step for step in (b * 10.0**e for e in range(least, 13) for b in (1, 2, 5)) if is_enough(step))


Point = tuple[float, float]
HERE = Affine.identity()
EM, BOLD_EM = 0.52, 0.62
"""Average width of a letter relative to its font size, for sans-serif; used to decide what fits."""


@dataclass
class Label(Text):
    """Text that starts, centers or ends at its place.

    Chalk's own text is always centered. So a label is placed where its middle is likely to be, `shift` to the right of
    where it starts (or left of where it ends); our SVG writer undoes the shift.
    """

    anchor: str = "middle"
    shift: float = 0.0
    bold: bool = False
    halo: str = ""
    """Colour of an outline around the letters, for text on top of lines."""

    def get_bounding_box(self) -> BoundingBox:
        """A box of zero width, because chalk's renderer moves text left by half the width."""
        return BoundingBox([P2(0, 0), P2(0, 1e-4)])


@lru_cache(maxsize=4096)
def _colour(name: str) -> Color:
    return Color(name)


@lru_cache(maxsize=4096)
def style(
    fill: str | None = None,
    stroke: str | None = None,
    width: float = 1.0,
    dash: tuple[float, ...] = (),
    opacity: float | None = None,
) -> Style:
    """The style of a mark; without a stroke colour it has no stroke."""
    return Style(
        line_width_=(WidthType.LOCAL, width if stroke else 0.0),
        line_color_=_colour(stroke or fill or "#000000"),
        fill_color_=_colour(fill) if fill else None,
        fill_opacity_=opacity,
        dashing_=(list(dash), 0.0) if dash else None,
    )


def _path(outlines: Iterable[Sequence[Point]], style: Style, closed: bool) -> Diagram:
    trails: list[Located] = []
    for outline in outlines:
        offsets = [V2(x1 - x0, y1 - y0) for (x0, y0), (x1, y1) in pairwise(outline)]
        trails.append(Trail.from_offsets(offsets, closed).at(P2(*outline[0])))
    return Primitive(Path(trails), style, HERE) if trails else Compose(Envelope.empty(), [])


def polygon(points: Sequence[Point], style: Style) -> Diagram:
    return _path((points,), style, closed=True)


def polygons(outlines: Iterable[Sequence[Point]], style: Style) -> Diagram:
    """Many closed outlines with one style, as a single path."""
    return _path(outlines, style, closed=True)


def lines(strokes: Iterable[Sequence[Point]], style: Style) -> Diagram:
    """Many open lines with one style, as a single path."""
    return _path(strokes, style, closed=False)


def corners(x0: float, y0: float, x1: float, y1: float) -> list[Point]:
    return [(x0, y0), (x1, y0), (x1, y1), (x0, y1)]


def box(x0: float, y0: float, x1: float, y1: float, style: Style) -> Diagram:
    return polygon(corners(x0, y0, x1, y1), style)


def diamond(x: float, y: float, r: float, style: Style) -> Diagram:
    return polygon([(x, y - r), (x + r, y), (x, y + r), (x - r, y)], style)


def label(
    x: float,
    y: float,
    text: str,
    size: float,
    colour: str,
    anchor: str = "middle",
    bold: bool = False,
    halo: str = "",
) -> Diagram:
    """One line of text, its middle at height `y`. `anchor` is start, middle or end."""
    shift = {"start": 0.5, "middle": 0.0, "end": -0.5}[anchor] * text_width(text, size, bold)
    place = Affine.translation(V2(x + shift, y))
    return Primitive(Label(text, size, anchor, shift, bold, halo), style(colour), place)


def tooltip(diagram: Diagram, text: str) -> Diagram:
    """The diagram with a name, which the SVG shows as a tooltip."""
    return ApplyName(Name(text), diagram)


def hatch(x0: float, y0: float, x1: float, y1: float, gap: float = 6.0) -> list[list[Point]]:
    """Diagonal strokes, bottom left to top right, clipped to the box."""
    strokes: list[list[Point]] = []
    shift = gap
    width, height = x1 - x0, y1 - y0
    while shift < width + height:
        start = (x0, y0 + shift) if shift <= height else (x0 + shift - height, y1)
        end = (x0 + shift, y0) if shift <= width else (x1, y0 + shift - width)
        strokes.append([start, end])
        shift += gap
    return strokes


def dots(x0: float, y0: float, x1: float, y1: float, gap: float = 5.0) -> list[list[Point]]:
    """Small squares on a grid within the box."""
    columns = max(1, int((x1 - x0) / gap))
    rows = max(1, int((y1 - y0) / gap))
    across, down = (x1 - x0) / columns, (y1 - y0) / rows
    r = min(1.8, y1 - y0) / 2
    centres = [(x0 + (i + 0.5) * across, y0 + (j + 0.5) * down) for j in range(rows) for i in range(columns)]
    return [corners(x - r, y - r, x + r, y + r) for x, y in centres]


def text_width(text: str, size: float, bold: bool = False) -> float:
    return (BOLD_EM if bold else EM) * size * len(text)


def clip(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def box_envelope(width: float, height: float) -> Envelope:
    return Envelope(lambda d: (width * d.x if d.x > 0 else 0.0) + (height * d.y if d.y > 0 else 0.0))


def panel(width: float, height: float, parts: Iterable[Diagram]) -> Diagram:
    """Parts within the box from (0, 0) to (width, height)."""
    return Compose(box_envelope(width, height), list(parts))


def stack(panels: Sequence[Diagram]) -> Diagram:
    """One below the other, left edges aligned."""
    page, *rest = panels
    for part in rest:
        page = page / part
    return page

"""A finished picture: a chalk diagram with a size in pixels, a text description for screen readers, and its SVG.

Decided here are the size at which a picture is legible, its form in a notebook, and how SVG is written. The writer
knows what `pen` makes, and nothing else: paths of straight lines, labels, names and translations, with coordinates in
tenths of a pixel. Any other diagram of chalk is written by chalk. Rejected: chalk's writer for all, which is slow for
thousands of marks and has no tooltips. A dark picture is the same diagram, each colour of which is turned as it is
written, so no drawing function knows of it.
"""

import pathlib
import re
from collections.abc import Callable
from tempfile import TemporaryDirectory
from typing import Any
from xml.sax.saxutils import escape

import chalk.core
from chalk.core import ApplyName, ApplyStyle, ApplyTransform, BaseDiagram, Compose, Empty, Primitive
from chalk.shapes import Path, Segment
from chalk.style import Style
from chalk.types import Diagram
from chalk.visitor import DiagramVisitor

from drawing.pen import Label, box, box_envelope, style
from lib import PuzzleError

from .palette import EDGE, PAPER, dark_variant

Offset = tuple[float, float]

FONT = "Helvetica,'Helvetica Neue',Arial,'Liberation Sans',sans-serif"
"""CairoSVG takes only the first; systems have a substitute for Helvetica."""
FIT = ' style="max-width:100%;block-size:auto"'
"""A narrow page shows a picture smaller, with the same proportions. `height:auto` would do too, but CairoSVG reads it
as a height of 0, and ignores `block-size`."""
LEGIBLE = 8.0
"""The smallest letters that people can read on a screen, in pixels. A picture is not shown with smaller letters unless
it was drawn with them."""


def clean(text: str) -> str:
    """Any text as XML content: special characters escaped, characters that XML cannot hold replaced."""
    return escape(re.sub("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", text), {'"': "&quot;"})


def number(tenths: int) -> str:
    """125 is '12.5', 5 is '.5', 120 is '12'."""
    whole, rest = divmod(abs(tenths), 10)
    digits = f"{whole or ''}.{rest}" if rest else str(whole)
    return "-" + digits if tenths < 0 else digits


class SvgWriter(DiagramVisitor[Any, Any]):
    """Visits what `pen` creates: paths of straight lines, labels, names and translations."""

    def __init__(self, tone: Callable[[str], str] = str) -> None:
        """`tone` maps each colour to the one that is written."""
        self.tone = tone
        self._looks: dict[int, str] = {}
        self._tip = ""

    def visit_compose(self, diagram: Compose, at: Offset) -> str:
        return "".join([part.accept(self, at) for part in diagram.diagrams])

    def visit_empty(self, diagram: Empty, at: Offset) -> str:
        return ""

    def visit_apply_style(self, diagram: ApplyStyle, at: Offset) -> str:
        raise TypeError("give a mark its style when it is created; pictures are flat")

    def visit_apply_transform(self, diagram: ApplyTransform, at: Offset) -> str:
        _, _, dx, _, _, dy = diagram.transform[:6]
        return str(diagram.diagram.accept(self, (at[0] + dx, at[1] + dy)))

    def visit_apply_name(self, diagram: ApplyName, at: Offset) -> str:
        title = f"<title>{clean(str(diagram.dname))}</title>"
        if isinstance(diagram.diagram, Primitive):
            self._tip = title
            return str(diagram.diagram.accept(self, at))
        return f"<g>{title}{diagram.diagram.accept(self, at)}</g>\n"

    def visit_primitive(self, diagram: Primitive, at: Offset) -> str:
        shape, tip, self._tip = diagram.shape, self._tip, ""
        _, _, dx, _, _, dy = diagram.transform[:6]
        x, y = at[0] + dx, at[1] + dy
        if isinstance(shape, Label):
            return self._text(shape, diagram.style, x, y, tip)
        assert isinstance(shape, Path)
        end = f">{tip}</path>\n" if tip else "/>\n"
        return f'<path d="{path_data(shape, x, y)}"{self._look(diagram.style, shape)}{end}'

    def _text(self, shape: Label, style: Style, x: float, y: float, tip: str) -> str:
        size = shape.font_size or 10.0
        left, base = round((x - shape.shift) * 10), round((y + 0.35 * size) * 10)  # its baseline is below the middle
        more = "" if shape.anchor == "middle" else f' text-anchor="{shape.anchor}"'
        if shape.bold:
            more += ' font-weight="bold"'
        words = clean(shape.text)
        place = f'<text x="{number(left)}" y="{number(base)}" font-size="{size:g}"'
        halo = ""
        if shape.halo:  # a broad outline below the text; CairoSVG does not know `paint-order`
            colour = self.tone(shape.halo)
            halo = (
                f'{place} fill="none"{more} stroke="{colour}" stroke-width="3" stroke-linejoin="round">{words}</text>\n'
            )
        return f'{halo}{place} fill="{hex_of(style.fill_color_, self.tone)}"{more}>{tip}{words}</text>\n'

    def _look(self, style: Style, shape: Path) -> str:
        closed = shape.loc_trails[0].trail.closed
        key = id(style) if closed else -id(style)
        if key not in self._looks:
            self._looks[key] = look_attributes(style, closed, self.tone)
        return self._looks[key]


def hex_of(colour: Any, tone: Callable[[str], str]) -> str:
    """A colour in its shortest form: '#fff' for white."""
    if colour is None:
        return "none"
    text = tone(str(colour.hex_l))
    return f"#{text[1]}{text[3]}{text[5]}" if text[1::2] == text[2::2] else text


def look_attributes(style: Style, closed: bool, tone: Callable[[str], str] = str) -> str:
    """A style as attributes, each preceded by a space."""
    parts = [f'fill="{hex_of(style.fill_color_ if closed else None, tone)}"']
    if style.fill_opacity_ is not None:
        parts.append(f'fill-opacity="{style.fill_opacity_:g}"')
    width = style.line_width_[1] if style.line_width_ is not None else 0.0
    if width:
        parts.append(f'stroke="{hex_of(style.line_color_, tone)}"')
        if width != 1:
            parts.append(f'stroke-width="{number(round(width * 10))}"')
    if style.dashing_ is not None:
        parts.append(f'stroke-dasharray="{" ".join(f"{d:g}" for d in style.dashing_[0])}"')
    return "".join(f" {part}" for part in parts)


def path_data(shape: Path, dx: float, dy: float) -> str:
    """The outlines of a path, each from its start by relative steps between rounded points."""
    out: list[str] = []
    for located in shape.loc_trails:
        x, y = located.location
        x, y = x + dx, y + dy
        last_x, last_y = round(x * 10), round(y * 10)
        out.append(f"M{number(last_x)} {number(last_y)}")
        for segment in located.trail.segments:
            assert isinstance(segment, Segment)
            step_x, step_y = segment.offset
            x, y = x + step_x, y + step_y
            new_x, new_y = round(x * 10), round(y * 10)
            if new_y == last_y:
                out.append("h" + number(new_x - last_x))
            elif new_x == last_x:
                out.append("v" + number(new_y - last_y))
            else:
                down = number(new_y - last_y)  # a minus sign already separates the numbers
                out.append(f"l{number(new_x - last_x)}{'' if down[0] == '-' else ' '}{down}")
            last_x, last_y = new_x, new_y
        if located.trail.closed:
            out.append("z")
    return "".join(out)


MARGIN = 12.0


class Picture(Compose):
    """A diagram on its background, `width` by `height` pixels from (0, 0), with `title` and `description`."""

    def __init__(self, content: Diagram, title: str, description: str, dark: bool = False) -> None:
        envelope = content.get_envelope()
        self.width: float = envelope.width + 2 * MARGIN
        self.height: float = envelope.height + 2 * MARGIN
        self.title, self.description, self.dark = title, description, dark
        paper = box(0.5, 0.5, self.width - 0.5, self.height - 0.5, style(PAPER, EDGE, 0.5))
        super().__init__(box_envelope(self.width, self.height), [paper, content.translate(MARGIN, MARGIN)])

    def __repr__(self) -> str:
        return f"{self.title}: {self.description}"

    def in_text(self) -> str:
        """The picture as text."""
        return f"{self.title}: {self.description}\n"

    def in_svg(self) -> str:
        """The picture as the text of an SVG document, with tooltips, at a readable size."""
        content = self.accept(SvgWriter(dark_variant if self.dark else str), (0.0, 0.0))
        # The height that `chalk.set_svg_height` asked for, if it was called. What that would make illegible is larger.
        wanted: float = chalk.core.SVG_HEIGHT
        # With chalk's default height a picture is shown at its own size; none is enlarged more than twice.
        scale = 1.0 if wanted == 200 else min(wanted / self.height, 2.0)
        letters = map(float, re.findall(r'font-size="([\d.]+)"', content))
        scale = max(scale, min(1.0, LEGIBLE / min(letters, default=LEGIBLE)))
        size = f'width="{round(self.width * scale)}" height="{round(self.height * scale)}"'
        # Pictures up to notebook width shrink with it; wider ones stay legible and scroll.
        fit, title = FIT if self.width <= 1400 else "", clean(self.title)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} viewBox="0 0 {self.width:g} {self.height:g}"{fit} '
            f'role="img" aria-label="{title}" font-family="{FONT}" text-anchor="middle">'
            f"<title>{title}</title><desc>{clean(self.description)}</desc>\n{content}</svg>\n"
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The picture, and a text for screen readers and for notebooks converted to text.

        The SVG is given as HTML, which JupyterLab includes in its page. Output of type image/svg+xml becomes an <img>
        there, in which shapes have no tooltips. Jupyter Notebook, nbviewer and Colab show both alike.
        """
        return {"text/html": self.in_svg(), "text/plain": self.in_text()}

    def _repr_html_(self) -> str:
        return self.in_svg()

    def _repr_svg_(self) -> Any:
        """None, although chalk has an SVG here: a notebook would store the picture twice."""
        return None


def svg(diagram: Diagram) -> str:
    """SVG text of a diagram: compact and with tooltips for a Picture, as chalk writes it for any other."""
    if not isinstance(diagram, BaseDiagram):
        raise PuzzleError(f"svg takes a diagram, as draw returns; got {type(diagram).__name__}")
    if isinstance(diagram, Picture):
        return diagram.in_svg()
    with TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "picture.svg")
        diagram.render_svg(str(file), height=chalk.core.SVG_HEIGHT, draw_height=chalk.core.SVG_DRAW_HEIGHT)
        return file.read_text(encoding="utf-8")

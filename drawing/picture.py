"""A finished picture: a chalk diagram with a size in pixels, and a text description for screen readers."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import chalk.core
from chalk.core import BaseDiagram, Compose
from chalk.types import Diagram

from lib import PuzzleError

from .palette import EDGE, PAPER
from .pen import box, box_envelope, style
from .svg_writer import compact_svg

MARGIN = 12.0
CHALK_HEIGHT = 200
"""Chalk's default height; with it, a picture is shown at its own size."""
MAX_ENLARGEMENT = 2.0
"""Maximum enlargement of a small picture, however tall the notebook requests it."""


class Picture(Compose):
    """A diagram on its own background, `width` by `height` pixels from (0, 0), with `title` and `description`."""

    def __init__(self, content: Diagram, title: str, description: str, dark: bool = False) -> None:
        envelope = content.get_envelope()
        self.width: float = envelope.width + 2 * MARGIN
        self.height: float = envelope.height + 2 * MARGIN
        self.title = title
        self.description = description
        self.dark = dark
        paper = box(0.5, 0.5, self.width - 0.5, self.height - 0.5, style(PAPER, EDGE, 0.5))
        super().__init__(box_envelope(self.width, self.height), [paper, content.translate(MARGIN, MARGIN)])

    def __repr__(self) -> str:
        return f"{self.title}: {self.description}"

    def in_text(self) -> str:
        """The picture as text."""
        return f"{self.title}: {self.description}\n"

    def in_svg(self) -> str:
        """The picture as the text of an SVG document, with tooltips."""
        scale = shown_height(self.height) / self.height
        return compact_svg(self, self.width, self.height, scale, self.title, self.description, self.dark)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """The picture, and a text for screen readers and for notebooks converted to text.

        The SVG is given as HTML, which JupyterLab makes part of its page. An output of type image/svg+xml becomes an
        <img> there, and the shapes in an <img> have no tooltips. Jupyter Notebook, nbviewer and Colab show both alike.
        """
        return {"text/html": self.in_svg(), "text/plain": self.in_text()}

    def _repr_html_(self) -> str:
        return self.in_svg()

    def _repr_svg_(self) -> Any:
        """Nothing, where chalk has an SVG: a notebook would store the picture twice."""
        return None


def shown_height(height: float) -> float:
    """The height that `chalk.set_svg_height` asked for, if it was called; otherwise the picture's own. What that would
    make illegible is shown larger."""
    wanted: float = chalk.core.SVG_HEIGHT
    return height if wanted == CHALK_HEIGHT else min(wanted, MAX_ENLARGEMENT * height)


def svg(diagram: Diagram) -> str:
    """SVG text of a diagram: compact and with tooltips for a Picture, as chalk writes it for any other."""
    if not isinstance(diagram, BaseDiagram):
        raise PuzzleError(f"svg takes a diagram, as draw returns; got {type(diagram).__name__}")
    if isinstance(diagram, Picture):
        return diagram.in_svg()
    with TemporaryDirectory() as folder:
        file = Path(folder) / "picture.svg"
        diagram.render_svg(str(file), height=chalk.core.SVG_HEIGHT, draw_height=chalk.core.SVG_DRAW_HEIGHT)
        return file.read_text(encoding="utf-8")

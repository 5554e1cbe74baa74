"""What a player sees: the pictures of README.md and docs/mistakes.md, from the approved screens in tests/screens.

`make docs` writes them again, a test checks that they are current. Nothing is run for them: `make screens` has done it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from math import ceil
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

from docs.generate.gallery import FOLDER
from tests.screens.scenes import MISTAKES, SCENES, Mistake, Scene
from tests.screens.typed import approved

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "mistakes.md"

SHOWN = ("mistake_no_await", "pass_two_stars")
"""The scenes whose pictures README.md has: a run that fails, and one that passes."""

STYLES = (
    (r"^\$ .*$", "bold white"),
    (r"(?<= )passed$", "bold green"),
    (r"(?<= )(failed: \w+|over target)$", "bold red"),
    (r"[★☆]{3}", "yellow"),
    (r"'puzzles [^']+'", "cyan"),
    (r"^    > .*$", "cyan"),
    (r"^ ─+ *$", "bright_black"),
)
"""What is coloured, as on a terminal: screens are kept without colours."""

FONT_FACE = re.compile(r"    @font-face \{.*?\n    \}\n", re.DOTALL)
"""Fonts from another site, which nothing here loads; there is a font of the machine behind them."""

VIEW = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
"""The size of a picture, which programs that draw it want as width and height too."""


def picture(name: str) -> str:
    """The screen of a scene as SVG."""
    (scene,) = (scene for scene in SCENES if scene.name == name)
    shown = screen(scene)
    text = Text(f"{shown}\n")  # with room for what hangs below the last line
    for pattern, style in STYLES:
        text.highlight_regex(re.compile(pattern, re.MULTILINE), style)
    width = max(map(len, shown.splitlines()))
    console = Console(width=width, record=True, file=io.StringIO(), legacy_windows=False)
    console.print(text, soft_wrap=True)
    drawn = console.export_svg(title="puzzles", theme=SVG_EXPORT_THEME, unique_id=name.replace("_", "-"))
    return VIEW.sub(_sized, FONT_FACE.sub("", drawn), count=1)


def _sized(view: re.Match[str]) -> str:
    """In whole pixels."""
    width, height = (ceil(float(length)) for length in view.groups())
    return f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'


def screen(scene: Scene) -> str:
    """What was approved, without the empty lines at its end."""
    return approved(scene).read_text(encoding="utf-8").rstrip()


HEAD = """\
# Twenty mistakes

Twenty typical mistakes, in the order of the core path. Each section says what to learn from one, and shows what
`puzzles grade` prints. The screens are those that the tests compare, and the code of each mistake is in
`tests/catalog/wrong`. Nobody has counted how often they are made.
"""


def page() -> str:
    """docs/mistakes.md."""
    return "\n".join([HEAD, *(part for mistake in MISTAKES for part in section(mistake))])


def section(mistake: Mistake) -> Iterator[str]:
    slug = mistake.path.partition("/")[0]
    yield f"## {mistake.title}\n"
    yield f"`{slug}`: {mistake.lesson}\n"
    yield f"```console\n{screen(mistake.scene)}\n```\n"


def main() -> None:
    for name in SHOWN:
        (FOLDER / f"screen_{name}.svg").write_text(picture(name), encoding="utf-8")
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Pictures as files: the file ending selects the format."""

import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from importlib import import_module
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import cast

from chalk.core import BaseDiagram
from chalk.types import Diagram

from drawing.picture import svg
from drawing.runs.captions import name_of
from drawing.runs.scene import RunLike, Scene, scene_from
from drawing.runs.text import text_of
from drawing.runs.timeline import Timeline, draw_scene
from lib import Goal, PuzzleError
from lib.extras import install_command

from .html import web_page
from .perfetto import viewer_json

SCALE = 2
"""Pixels of a PNG for each pixel of the picture, so that it is sharp on slides and on dense screens."""

BROWSERS = "chromium chromium-browser google-chrome google-chrome-stable chrome msedge".split()
ON_A_MAC = Path("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome")
SECONDS = 60.0
"""The time limit of a conversion; a browser has to start first."""

OPTIONS = "--headless --disable-gpu --hide-scrollbars --no-first-run --no-sandbox".split()
"""The last option is needed because Chromium refuses to start as root with its sandbox; the page is ours, and has no
script."""

PAGE = """<!doctype html><meta charset="utf-8"><style>@page {{ size: {width}px {height}px; margin: 0 }}
body {{ margin: 0 }} svg {{ display: block }}</style>{svg}"""


def converted(svg: str, ending: str) -> bytes:
    """SVG converted to the content of a .png or .pdf file."""
    if (library := cairo()) is None:
        return by_browser(svg, ending, require_converter())
    source = svg.encode()
    return bytes(
        library.svg2pdf(bytestring=source) if ending == ".pdf" else library.svg2png(bytestring=source, scale=SCALE)
    )


def require_converter() -> str:
    """The path of the browser that converts; empty if CairoSVG does it."""
    if cairo() is not None:
        return ""
    found = next(filter(None, map(shutil.which, BROWSERS)), str(ON_A_MAC) if ON_A_MAC.exists() else "")
    if not found:
        raise PuzzleError(
            f"PNG and PDF need CairoSVG ({install_command('pictures')}) or a browser (Chromium, Chrome or "
            "Edge); .svg needs neither"
        )
    return found


def cairo() -> ModuleType | None:
    """CairoSVG; None if it is missing, or the Cairo library that it needs."""
    try:
        return import_module("cairosvg")
    except (ImportError, OSError):
        return None


def by_browser(svg: str, ending: str, browser: str) -> bytes:
    """Prints or photographs a page of exactly the picture's size."""
    width, height = size_of(svg)
    with TemporaryDirectory(prefix="puzzles-") as folder:
        page, target = Path(folder, "page.html"), Path(folder, f"picture{ending}")
        page.write_text(PAGE.format(width=width, height=height, svg=svg), encoding="utf-8")
        output = (
            [f"--print-to-pdf={target}", "--no-pdf-header-footer"]
            if ending == ".pdf"
            else [f"--screenshot={target}", f"--window-size={width},{height}", f"--force-device-scale-factor={SCALE}"]
        )
        command = [browser, *OPTIONS, f"--user-data-dir={folder}/profile", *output, page.as_uri()]
        try:
            subprocess.run(command, capture_output=True, timeout=SECONDS, check=True)
            return target.read_bytes()
        except (OSError, subprocess.SubprocessError) as why:
            raise PuzzleError(f"{Path(browser).name} could not make the {ending[1:].upper()} ({why})") from None


def size_of(svg: str) -> tuple[int, int]:
    """Width and height in whole pixels, as the root element states them."""
    root = svg.partition("<svg")[2].partition(">")[0]
    found = {name: re.search(rf'\s{name}="([\d.]+)', root) for name in ("width", "height")}
    width, height = (float(match[1]) if match else 0.0 for match in found.values())
    if not (width and height):
        raise PuzzleError("this SVG does not state its width and height in pixels")
    return ceil(width), ceil(height)


OF_A_RUN: Mapping[str, Callable[[Scene, str], str]] = {".html": web_page, ".json": viewer_json, ".txt": text_of}
"""Formats that only a run has: each turns a scene and a title into the text of a file."""

OF_A_PICTURE = (".svg", ".png", ".pdf")
ENDINGS = (*OF_A_PICTURE, *OF_A_RUN)


def save(
    picture: Diagram | str | RunLike,
    path: str | Path,
    title: str = "",
    goal: Goal | None = None,
    critical: bool = False,
    colour: str = "layer",
) -> None:
    """Writes a diagram, or SVG text, to `path`; a run, or the timeline of one, in any of the formats.

    `title`, `goal`, `critical` and `colour` apply to a run, as in `draw`.

    Raises:
        PuzzleError: the ending is not known or does not suit the picture, nothing here makes PNG or PDF, or the file
            cannot be written.
    """
    path = Path(path)
    ending = path.suffix.lower()
    require_ending(path, of_a_run=not isinstance(picture, BaseDiagram | str) or isinstance(picture, Timeline))
    if isinstance(picture, Timeline) and ending in OF_A_RUN:
        text = in_form(picture.scene, picture.title, ending)
    elif isinstance(picture, BaseDiagram | str):
        text = picture if isinstance(picture, str) else svg(picture)
    else:
        scene = scene_from(cast(RunLike, picture), goal, colour)  # chalk's diagrams are all BaseDiagrams
        text = in_form(scene, title, ending) if ending in OF_A_RUN else svg(draw_scene(scene, title, critical))
    data = text.encode() if ending in (".svg", *OF_A_RUN) else converted(text, ending)
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why) or "unknown error"
        raise PuzzleError(f"cannot write {path}: {reason.lower()}") from None


def in_form(scene: Scene, title: str, ending: str) -> str:
    """A run as the text of a file with this ending."""
    return OF_A_RUN[ending](scene, title or name_of(scene))


def is_picture(path: str | Path) -> bool:
    """True for the name of a picture, false for the other formats of a run."""
    return Path(path).suffix.lower() in OF_A_PICTURE


def require_ending(path: str | Path, of_a_run: bool = True) -> None:
    """Refuses a name whose ending is not a format, does not suit the picture, or is not available here.

    Raises:
        PuzzleError: naming the possible endings, or what to install.
    """
    ending = Path(path).suffix
    if ending.lower() not in ENDINGS:
        what = f"the ending '{ending}'" if ending else "a name without an ending"
        raise PuzzleError(f"cannot write {path}: {what} is unknown; use {known(ENDINGS)}")
    if ending.lower() in OF_A_RUN and not of_a_run:
        raise PuzzleError(
            f"cannot write {path}: only the timeline of one run can be written as {ending}; use {known(OF_A_PICTURE)}"
        )
    if ending.lower() in (".png", ".pdf"):
        try:
            require_converter()
        except PuzzleError as why:
            raise PuzzleError(f"cannot write {path}: {why}") from None


def known(endings: tuple[str, ...]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}"

"""Pictures as files: the file ending selects the format."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

from chalk.core import BaseDiagram
from chalk.types import Diagram

from drawing.picture import svg
from drawing.runs.captions import name_of
from drawing.runs.scene import RunLike, Scene, scene_from
from drawing.runs.text import text_of
from drawing.runs.timeline import Timeline, draw_scene
from lib import Goal, PuzzleError

from .html import web_page
from .perfetto import viewer_json
from .raster import converted, require_converter

OF_A_RUN: Mapping[str, Callable[[Scene, str], str]] = {".html": web_page, ".json": viewer_json, ".txt": text_of}
"""Formats that only a run has: each turns a scene and a title into the text of the file."""

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
    if isinstance(picture, BaseDiagram | str):
        text = form_of(picture, ending)
    else:
        scene = scene_from(cast(RunLike, picture), goal, colour)  # chalk's diagrams are all BaseDiagrams
        text = in_form(scene, title, ending) if ending in OF_A_RUN else svg(draw_scene(scene, title, critical))
    data = text.encode() if ending in (".svg", *OF_A_RUN) else converted(text, ending)
    try:
        path.write_bytes(data)
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why) or "unknown error"
        raise PuzzleError(f"cannot write {path}: {reason.lower()}") from None


def form_of(picture: Diagram | str, ending: str) -> str:
    """A picture as the text of a file with this ending."""
    if isinstance(picture, Timeline) and ending in OF_A_RUN:
        return in_form(picture.scene, picture.title, ending)
    return picture if isinstance(picture, str) else svg(picture)


def in_form(scene: Scene, title: str, ending: str) -> str:
    """A run as the text of a file with this ending."""
    return OF_A_RUN[ending](scene, title or name_of(scene))


def is_picture(path: str | Path) -> bool:
    """True for the name of a picture, false for the other formats of a run."""
    return Path(path).suffix.lower() in OF_A_PICTURE


def require_ending(path: str | Path, of_a_run: bool = True) -> None:
    """Refuses a name whose ending is not a format, not one for this kind of picture, or not available here.

    Raises:
        PuzzleError: naming the endings that are, or what to install.
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

"""Pictures as files: the format follows the file's ending."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from chalk.types import Diagram

from lib import PuzzleError

from .page import page
from .picture import svg
from .timeline import Timeline
from .viewer import viewer_json

OF_A_RUN: Mapping[str, Callable[[Timeline], str]] = {
    ".html": lambda timeline: page(timeline.scene, timeline.title),
    ".json": lambda timeline: viewer_json(timeline.scene, timeline.title),
    ".txt": Timeline.in_text,
}
"""What only a run has: it takes a timeline, as `draw` returns it."""

ENDINGS = (".svg", *OF_A_RUN)


def save(picture: Diagram | str, path: str | Path) -> None:
    """Writes a diagram, or SVG text, to `path`; the picture of a run in any of the formats.

    Raises:
        PuzzleError: the ending is not known or does not suit the picture, or the file cannot be written.
    """
    path = Path(path)
    require_ending(path, of_a_run=isinstance(picture, Timeline))
    text = form_of(picture, path.suffix.lower())
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why) or "unknown error"
        raise PuzzleError(f"cannot write {path}: {reason.lower()}") from None


def form_of(picture: Diagram | str, ending: str) -> str:
    """A picture as the text of a file with this ending."""
    if isinstance(picture, Timeline) and ending in OF_A_RUN:
        return OF_A_RUN[ending](picture)
    return picture if isinstance(picture, str) else svg(picture)


def require_ending(path: str | Path, of_a_run: bool = True) -> None:
    """Refuses a name whose ending is no format, or not one for this kind of picture.

    Raises:
        PuzzleError: naming the endings that are.
    """
    ending = Path(path).suffix
    if ending.lower() not in ENDINGS:
        what = f"the ending '{ending}'" if ending else "a name without an ending"
        raise PuzzleError(f"cannot write {path}: {what} is not known; use {known(ENDINGS)}")
    if ending.lower() in OF_A_RUN and not of_a_run:
        raise PuzzleError(f"cannot write {path}: only the timeline of one run is written as {ending}; use .svg")


def known(endings: tuple[str, ...]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}"

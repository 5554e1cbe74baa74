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
    text = form_of(picture, path)
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except (OSError, ValueError) as why:
        reason = getattr(why, "strerror", None) or str(why) or "unknown error"
        raise PuzzleError(f"cannot write {path}: {reason.lower()}") from None


def form_of(picture: Diagram | str, path: Path) -> str:
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        what = f"the ending '{path.suffix}'" if path.suffix else "a name without an ending"
        raise PuzzleError(f"cannot write {path}: {what} is not known; use {known(ENDINGS)}")
    if ending == ".svg":
        return picture if isinstance(picture, str) else svg(picture)
    if not isinstance(picture, Timeline):
        raise PuzzleError(f"cannot write {path}: only the timeline of one run is written as {ending}; use .svg")
    return OF_A_RUN[ending](picture)


def known(endings: tuple[str, ...]) -> str:
    return f"{', '.join(endings[:-1])} or {endings[-1]}"

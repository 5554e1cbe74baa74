"""Pictures as files."""

from __future__ import annotations

from pathlib import Path

from chalk.types import Diagram

from lib import PuzzleError

from .picture import svg

ENDINGS = (".svg",)


def save(picture: Diagram | str, path: str | Path) -> None:
    """Writes a diagram, or SVG text, to `path`.

    Raises:
        PuzzleError: the ending is not known, or the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        ending = f"the ending '{path.suffix}'" if path.suffix else "a name without an ending"
        raise PuzzleError(f"cannot write {path}: {ending} is not known; use {' or '.join(ENDINGS)}")
    text = picture if isinstance(picture, str) else svg(picture)
    try:
        path.write_text(text, encoding="utf-8", newline="\n")
    except OSError as why:
        raise PuzzleError(f"cannot write {path}: {(why.strerror or 'unknown error').lower()}") from None

"""Solutions that differ from a reference in a few texts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from puzzles.custom import EDITS, edited
from puzzles.tracks import reference_file


def altered(slug: str, changes: tuple[tuple[str, str], ...]) -> Callable[..., Any]:
    """The reference of a puzzle with texts replaced, each of which must be there."""
    path = reference_file(slug)
    assert path is not None
    source = path.read_text(encoding="utf-8")
    for before, after in changes:
        assert before in source, f"{slug}.py has no {before!r}"
        source = source.replace(before, after)
    names: dict[str, Any] = {}
    exec(compile(source, f"{slug}.py", "exec"), names)
    definition: Callable[..., Any] = names[slug]
    return definition


def code_of(path: Path) -> str:
    """The code of a wrong solution in the folder of its puzzle: its own, or the reference with its edits."""
    if path.suffix != EDITS:
        return path.read_text(encoding="utf-8")
    reference = reference_file(path.parent.name)
    assert reference is not None
    return edited(reference, path)

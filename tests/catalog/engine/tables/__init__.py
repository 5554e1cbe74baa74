"""Tables for the engine puzzles: figures of the references, and wrong solutions with their messages, by chapter.

A wrong solution is (slug, mistake): (text of the reference, what replaces it, how the verdict begins). In
the last, ' ... ' stands for anything: for numbers whose last digit may differ between machines, for instance.
"""

from importlib import import_module
from pathlib import Path

from puzzles.catalog.engine import ENGINE_PUZZLES

_CHAPTERS = [import_module(f"{__name__}.{path.stem}") for path in sorted(Path(__file__).parent.glob("[a-z]*.py"))]

FIGURES: dict[str, dict[str, int]] = {
    **{slug: {**puzzle.targets} for slug, puzzle in ENGINE_PUZZLES.items()},
    **{slug: row for chapter in _CHAPTERS for slug, row in chapter.FIGURES.items()},
}
"""Of a puzzle that no table has, the reference's figures are the targets, as `puzzles check --write` writes them."""

WRONG: dict[tuple[str, str], tuple[str, str, str]] = {
    k: row for chapter in _CHAPTERS for k, row in chapter.WRONG.items()
}

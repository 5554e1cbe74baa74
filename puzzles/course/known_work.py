"""What everybody's solution may have in common: the lines of references, known records and starters, and their runs."""

import ast
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from puzzles.custom import home_of
from puzzles.failure import UNPARSABLE
from puzzles.grading.verdict import Graded
from puzzles.sandbox.visible_files import INSTALL_ROOT
from puzzles.sandbox.worker.work import work
from puzzles.tracks import track_of

from .same_work import CommonWork

Grade = Callable[[str, str], Graded]
"""Grades a puzzle in a file, both by name."""


def known_work(slugs: Iterable[str], grade: Grade) -> dict[str, CommonWork]:
    """What is known of each puzzle; `grade` runs each solution once, for its run."""
    shipped = {file: _definitions(file.read_text(encoding="utf-8")) for file in _shipped()}
    return {slug: _known(slug, shipped, grade) for slug in slugs}


def _known(slug: str, shipped: dict[Path, dict[str, ast.stmt]], grade: Grade) -> CommonWork:
    known = CommonWork()
    files = dict(shipped)
    for file in _own(slug):
        files[file] = _definitions(file.read_text(encoding="utf-8-sig", errors="replace"))
    for file, definitions in files.items():
        if slug in definitions:
            (verdict,) = grade(str(file), slug).verdicts
            known.add(verdict.work or ("", ""))
    starter = _definitions(track_of(slug).puzzle(slug).starter)
    if slug in starter and (lines := work(slug, starter)):
        known.add((lines[0], "", *lines[1:]))
    return known


def _shipped() -> Iterator[Path]:
    return (file for file in sorted((INSTALL_ROOT / "solutions").rglob("*.py")) if not file.name.startswith("_"))


def _own(slug: str) -> list[Path]:
    """The reference of a teacher's puzzle."""
    home = home_of(slug)
    own = home.puzzles[slug] if home else None
    file = own.file.parent / own.reference if own and own.reference else None
    return [file] if file and file.is_file() else []


def _definitions(source: str) -> dict[str, ast.stmt]:
    """The functions and classes at the top of our own source, by name."""
    try:
        body = ast.parse(source).body
    except UNPARSABLE:
        return {}
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}

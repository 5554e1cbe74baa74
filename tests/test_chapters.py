"""A module is a chapter: one idea, in 80 to 1,000 lines; from 200 lines on its head says what it decides."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FILES = sorted(path for name in ("lib", "drawing", "puzzles") for path in (ROOT / name).rglob("*.py"))

SHORT = {
    "puzzles/__main__.py": "Python runs it for `python -m puzzles`",
    "puzzles/package/hooks.py": "pyproject.toml names it to the build backend",
    "puzzles/package/training_puzzles/__main__.py": "Python runs it for `python -m training_puzzles`",
    "puzzles/page/warm_up/solutions/warm_up.py": "the solution of a puzzle",
    "puzzles/tracks/engine/show.py": "a track has its objects in files of these names",
    "puzzles/tracks/plan/show.py": "as above",
    "puzzles/version.py": "the build backend and the release read it",
}
"""Modules below 80 lines: each with the reason why no other has its lines."""


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_a_module_has_80_to_1000_lines() -> None:
    """But for trials of classes, which are content: a chapter has as many as it has puzzles."""
    names = {path.relative_to(ROOT).as_posix(): path for path in FILES if path.name != "__init__.py"}
    sizes = {name: lines(path) for name, path in names.items() if not name.startswith("puzzles/content/")}
    assert {name for name, size in sizes.items() if size < 80} == SHORT.keys()
    assert {name: size for name, size in sizes.items() if size > 1000} == {}


def test_the_tree_has_at_most_260_modules() -> None:
    assert len(FILES) <= 260


@pytest.mark.parametrize("path", [path for path in FILES if lines(path) >= 200], ids=lambda path: path.stem)
def test_a_long_module_has_a_head_that_argues(path: Path) -> None:
    """What it decides and what was rejected, in 5 to 35 lines; whether that is well said, a reader has to judge."""
    head = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    assert 5 <= len(head.splitlines()) <= 35

"""docs/security.md: every line names a test that exists and runs where the line says, and the site shows the page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| (.+) \| (\w+) \| (\w+) \| (\w+) \| `(\w+)::(\w+)` \|$", PAGE, re.MULTILINE)


def test_every_line_is_shown_by_a_test_that_exists() -> None:
    assert len(ROWS) == PAGE.count("::test_") == 30
    for what, *_, module, name in ROWS:
        tree = ast.parse((ROOT / "tests" / "puzzles" / f"{module}.py").read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, what


def test_marks_are_explained() -> None:
    marks = {mark for row in ROWS for mark in row[1:4]}
    notes = re.findall(r"^(\d)\. ", PAGE, re.MULTILINE)
    assert marks == {"yes", "no", *notes}


def test_the_site_has_the_page() -> None:
    assert "security.md" in (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")

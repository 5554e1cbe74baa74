"""The project's own files agree with each other: make, pre-commit, and the site's pages."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def recipe(target: str) -> list[str]:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    assert found is not None
    return found[1].strip().splitlines()


@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
def test_make_alone_lists_every_target_with_its_meaning() -> None:
    listed = subprocess.run(["make", "--no-print-directory"], cwd=ROOT, capture_output=True, text=True, check=True)
    targets = re.findall(r"^make ([a-z-]+) +\w.*", listed.stdout, re.MULTILINE)
    phony = re.search(r"^\.PHONY: ((?:.*\\\n)*.*)", MAKEFILE, re.MULTILINE)
    assert phony is not None
    assert sorted(targets) == sorted(phony[1].replace("\\", " ").split())


def test_pre_commit_runs_what_make_check_runs() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    entries = re.findall(r"entry: (.*)", hooks)
    assert entries == [line.strip().replace("$(BIN)", ".venv/bin") for line in recipe("check")]


def test_every_page_of_the_docs_is_on_the_site() -> None:
    listed = (ROOT / "docs" / "site" / "mkdocs.yml").read_text(encoding="utf-8")
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("*.md")}
    assert {page for page in pages if not re.search(rf": {re.escape(page)}$", listed, re.MULTILINE)} == set()

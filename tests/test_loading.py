"""What `lib` exports, and which of its modules an import loads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import lib

ROOT = Path(__file__).parents[1]

LATER = ("lib.ledger.referee", "lib.ledger.trace_json", "lib.ledger.goal", "json", "difflib", "asyncio")


def loaded_by(statement: str) -> set[str]:
    """The modules of LATER that a new interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*[name for name in {LATER!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    return set(found.stdout.split())


@pytest.mark.slow
def test_a_run_loads_neither_the_referee_nor_the_notation() -> None:
    assert loaded_by("from lib import Model, run") == set()
    assert loaded_by("from lib import Size, Setting") == set()
    assert {"lib.ledger.referee", "lib.ledger.trace_json"} <= loaded_by("from lib import *")


def test_every_exported_name_is_there_and_listed() -> None:
    assert [name for name in lib.__all__ if not hasattr(lib, name)] == []
    assert set(lib.__all__) <= {*dir(lib)}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="'lib' has no attribute 'refree'"):
        lib.refree  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="refree"):
        exec("from lib import refree")


MAX_MODULES = 25
"""Modules of ours that the shortest command loads."""


def test_the_version_is_printed_without_the_game() -> None:
    code = (
        "import sys, puzzles.__main__ as entry\n"
        "sys.argv = ['puzzles', '--version']\n"
        "try: entry.main()\nfinally: print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    ours = {name for name in ended.stdout.split() if name.partition(".")[0] in ("lib", "drawing", "puzzles")}
    assert "puzzles.cli.main" in ours
    assert len(ours) <= MAX_MODULES

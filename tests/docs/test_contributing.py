"""CONTRIBUTING is true: every path in it exists, and each question's file holds the answer."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")

ANSWERS = {
    "lib/communication/deadlock_text.py": "nobody can move",
    "lib/rules/collectives.py": "COLLECTIVES",
    "lib/engine/collectives.py": "def all_reduce",
    "lib/game/costs.py": "def duration",
    "lib/judging/memory.py": "peak",
    "lib/engine/metering/meter.py": "def communicate",
    "lib/layout/planning/exact.py": "def plan",
    "puzzles/sandbox/worker/withheld.py": "lib.schedules",
    "puzzles/custom/puzzle_file.py": "toml",
    "puzzles/grading/judge.py": "stars",
    "puzzles/content/schedule/classics/gpipe.toml": "statement",
}
"""By path in the table of questions: a text that the file, or a file of the folder, must contain."""


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_path_exists() -> None:
    """Paths in backticks, from the top level; files of a folder, in the same row, are named without their ending."""
    named = re.findall(r"`((?:lib|drawing|puzzles|solutions|notebooks|tests)/[\w./]*)`", TEXT)
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_every_question_has_an_answer() -> None:
    assert set(re.findall(r"`([\w/.]+)`", section("Where things are").partition("|---|")[2])) == set(ANSWERS)


@pytest.mark.parametrize(("path", "answer"), ANSWERS.items())
def test_the_answer_is_in_the_file(path: str, answer: str) -> None:
    place = ROOT / path
    files = sorted(place.glob("*.py")) if place.is_dir() else [place]
    assert any(answer in file.read_text(encoding="utf-8") for file in files)

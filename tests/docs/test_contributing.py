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
    "lib/engine/collectives.py": "def reduce_scatter",
    "lib/game/costs.py": "def duration",
    "lib/judging/referee.py": "stars",
    "puzzles/grading/judge.py": "works only at the shown size",
    "lib/judging/memory.py": "def profile",
    "lib/judging/peak.py": "def peak_contents",
    "lib/judging/family.py": "def family_of",
    "lib/recognition/recognition.py": "def recognize",
    "lib/bounds/timesteps.py": "def time_bound",
    "puzzles/sandbox/worker/withheld.py": "lib.schedules",
    "puzzles/catalog/schedule/records.py": "solutions/records",
    "puzzles/sandbox/worker/seccomp.py": "unshare",
    "puzzles/grading/source_file.py": "O_NOFOLLOW",
    "puzzles/sandbox/channel.py": "class Channel",
    "puzzles/custom/installed.py": "def installed_packages",
    "puzzles/sandbox/worker/kept_statements.py": "pure",
    "puzzles/grading/starters.py": "def untouched",
    "lib/engine/metering/meter.py": "def communicate",
    "lib/engine/transports/mpi/": "mpi4py",
    "lib/engine/transports/mpi/messages.py": "def send",
    "lib/engine/transports/mpi/meeting.py": "class Meeting",
    "puzzles/sandbox/worker/devices/judge_wire.py": "class ",
    "puzzles/catalog/engine/least.py": "class Least",
    "lib/solver/search.py": "def ",
    "lib/torch_csv/pipeline.py": "def ",
    "puzzles/site/in_browser/api.py": "def ",
    "puzzles/site/links.py": "def ",
    "lib/schedules/draft.py": "class Draft",
    "puzzles/custom/toml_file.py": "toml",
    "puzzles/custom/writing.py": "def write_targets",
    "puzzles/leaderboard/solution.py": "def ",
    "puzzles/sandbox/visible_files.py": "def hidden_folders",
    "lib/planning/best.py": "def ",
    "lib/layout/planning/exact.py": "def plan",
    "lib/layout/planning/peak.py": "class Timeline",
    "drawing/runs/rows.py": "kinds_of",
    "lib/runtime/nested.py": "run_nested",
    "lib/layout/program/jax_primitives.py": "dot_general",
    "drawing/layouts/propagation.py": "def draw_propagation",
    "drawing/runs/colouring.py": "PAINTS",
    "drawing/runs/memory.py": "def ",
    "puzzles/sandbox/worker/": "fork",
    "puzzles/catalog/schedule/classics/gpipe.py": "statement",
    "puzzles/catalog/schedule/chapters.py": "CHAPTERS =",
    "puzzles/catalog/schedule/setting_text.py": "def differences",
    "puzzles/commands/watch.py": "watchfiles",
    "puzzles/sandbox/worker/notebook_cells.py": "jupytext",
    "puzzles/reports/gradescope.py": "def gradescope",
}
"""By path in the table of questions: a text that the file, or a file of the folder, must contain."""


def section(title: str) -> str:
    return TEXT.split(f"## {title}\n")[1].split("\n## ")[0]


def test_every_path_exists() -> None:
    """Paths in backticks, from the top level; files of a folder, in the same row, are named without their ending."""
    named = re.findall(r"`((?:lib|drawing|puzzles|solutions|notebooks|tests)/[\w./]*)`", TEXT)
    assert len(named) > 30
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("folder", ["lib/", "lib/judging/"])
def test_every_module_of_a_folder_is_in_its_row(folder: str) -> None:
    (row,) = [line for line in TEXT.splitlines() if line.startswith(f"| `{folder}` |")]
    modules = {path.stem for path in (ROOT / folder).glob("*.py")} - {"__init__"}
    assert modules - set(re.findall(r"`(\w+)`", row)) == set()


def test_every_question_has_an_answer() -> None:
    assert set(re.findall(r"`([\w/.]+)`", section("Find it by its path").partition("|---|")[2])) == set(ANSWERS)


@pytest.mark.parametrize(("path", "answer"), ANSWERS.items())
def test_the_answer_is_in_the_file(path: str, answer: str) -> None:
    place = ROOT / path
    files = sorted(place.glob("*.py")) if place.is_dir() else [place]
    assert any(answer in file.read_text(encoding="utf-8") for file in files)

"""A player's folder of own puzzles may lack any file that is not needed to read it: `grade`, `watch` and `play` judge
what can be judged, and say of the rest why it cannot."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from puzzles import play
from puzzles.cli.watch import WatchState
from puzzles.custom import folder_added
from puzzles.judge.grader import grade_file
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.limits import Limits
from tests.support.relay import TRACKS, finished_folder

pytestmark = pytest.mark.usefixtures("in_this_process")

OPTIONAL = ("solutions", "wrong", "trials", "records", "chapter.toml")
SHAPES = [gone for count in range(len(OPTIONAL) + 1) for gone in combinations(OPTIONAL, count)]

ENGINE_IN_PYTHON = """
from puzzles.catalog.engine import EnginePuzzle

PUZZLE = EnginePuzzle(
    slug="relay_engine", title="T", statement="S.", starter="class relay_engine(ShardedEngine):\\n    ...\\n",
    hints=(), concept="", in_practice="", sources=(), credit="", targets={"sent": 6_144, "peak": 9_216}, arithmetic="",
)
"""


@pytest.fixture
def week(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder has a whole folder of puzzles, week3, and mine.py, which solves all of them."""
    monkeypatch.chdir(tmp_path)
    folder = finished_folder(Path("week3"))
    (folder / "chapter.toml").write_text('title = "The third week"\n')
    (folder / "records").mkdir()
    solutions = [(folder / "solutions" / f"relay_{track}.py").read_text() for track in TRACKS]
    Path("mine.py").write_text("\n\n".join(solutions))
    return folder


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def watched() -> list[Verdict]:
    game = WatchState("mine.py", Limits(), Console(file=io.StringIO(), width=100), grade_file, lambda page: None)
    game.begin()
    return list(game.verdicts.values())


def played() -> Iterator[Verdict]:
    names: dict[str, Any] = {}
    exec(compile(Path("mine.py").read_text(), "mine.py", "exec"), names)
    for track in TRACKS:
        yield play(f"relay_{track}", names[f"relay_{track}"]).verdict


@pytest.mark.sampled(1)
@pytest.mark.parametrize("gone", SHAPES, ids=lambda gone: "+".join(gone) or "nothing")
def test_a_folder_of_any_shape_can_be_played(gone: tuple[str, ...], week: Path) -> None:
    for name in gone:
        remove(week / name)
    wanted = {"relay_schedule": "passed", "relay_layout": "passed", "relay_plan": "passed"}
    wanted["relay_engine"] = "failed" if "trials" in gone else "passed"
    with folder_added(week):
        for verdicts in (grade_file("mine.py").verdicts, watched(), list(played())):
            attempted = {verdict.puzzle: verdict for verdict in verdicts if verdict.attempted}
            assert {slug: verdict.status for slug, verdict in attempted.items()} == wanted
            if "trials" in gone:
                failed = attempted["relay_engine"]
                assert failed.reason == "ungradable"
                assert "week3/trials/relay_engine.py:" in failed.message


@pytest.mark.sampled(1)
@pytest.mark.parametrize("trials", ["", "TRIALS = 5\n", "TRIALS = ()\n"])
def test_a_class_in_python_without_trials_fails_alone(trials: str, week: Path) -> None:
    (week / "relay_engine.toml").unlink()
    (week / "relay_engine.py").write_text(ENGINE_IN_PYTHON + trials)
    with folder_added(week):
        verdicts = {verdict.puzzle: verdict for verdict in grade_file("mine.py").verdicts if verdict.attempted}
    assert {slug for slug, verdict in verdicts.items() if verdict.status == "passed"} == {
        "relay_schedule", "relay_layout", "relay_plan"}  # fmt: skip
    assert "relay_engine.py:" in verdicts["relay_engine"].message

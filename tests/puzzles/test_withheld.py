"""No graded schedule comes from lib.schedules, however it is isolated; free play may use it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lib import schedules
from puzzles import play
from puzzles.catalog.schedule import PUZZLES
from puzzles.grading.grader import grade_puzzle
from puzzles.grading.session import Session, run_in
from puzzles.grading.submission import Submission
from puzzles.grading.verdict import Verdict
from puzzles.sandbox.limits import Limits
from puzzles.tracks import TRACKS
from tests.support.commands import puzzles
from tests.support.trust import trusted

__all__ = ["trusted"]

BORROWED = """
from lib.schedules import gpipe as order, pipeline

async def gpipe(model):
    await pipeline(order)(model)
"""
WAYS = {
    "at the top": (BORROWED, 2),
    "in the function": (
        """
async def gpipe(model):
    from lib.schedules import gpipe as order, pipeline
    await pipeline(order)(model)
""",
        3,
    ),
    "of a module in it": ("from lib.schedules.orders import gpipe", 1),
    "from the package": (
        """
async def gpipe(model):
    from lib import schedules
    await schedules.pipeline(schedules.gpipe)(model)
""",
        3,
    ),
    "by name": (
        """
from importlib import import_module
def gpipe(model):
    theirs = import_module("lib.schedules")
    return theirs.pipeline(theirs.gpipe)(model)
""",
        4,
    ),
    "as text": (
        """
import lib
def gpipe(model):
    exec(open(lib.__path__[0] + "/schedules/orders.py").read(), {})
""",
        4,
    ),
}


def graded(source: str) -> Verdict:
    with Session(Submission(Path("mine.py"), source.encode()), Limits(seconds=20)) as session:
        return grade_puzzle(PUZZLES["gpipe"], session)


@pytest.mark.parametrize(
    "way", [*list(WAYS)[:2], *(pytest.param(way, marks=pytest.mark.slow) for way in list(WAYS)[2:])]
)
def test_a_graded_schedule_cannot_use_it(way: str) -> None:
    source, line = WAYS[way]
    verdict = graded(source)
    assert (verdict.status, verdict.stars) == ("failed", 0)
    assert verdict.message.startswith(f"line {line}: ")
    assert "lib.schedules" in verdict.message
    assert "write it yourself" in verdict.message


def test_the_same_file_runs_where_nothing_is_graded() -> None:
    with Session(Submission(Path("mine.py"), BORROWED.encode()), Limits(seconds=20)) as session:
        session.read()
        assert run_in(session, TRACKS["schedule"], "gpipe", {"size": [8, 4, 4]}, 20).failure is None


@pytest.mark.usefixtures("trusted")
def test_free_play_may_use_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(BORROWED.replace("def gpipe", "def mine"))
    result = puzzles("run", "mine.py", "mine", "--size", "2,2,2")
    assert result.exit_code == 0, result.output
    assert "Correct: GPipe " in result.output
    Path("mine.py").write_text(BORROWED)
    result = puzzles("draw", "mine.py", "gpipe", "--text")
    assert result.exit_code == 0, result.output


theirs = schedules.pipeline(schedules.gpipe)
other = schedules


async def helper(model: Any) -> None:
    await theirs(model)


async def by_a_helper(model: Any) -> None:
    await helper(model)


async def by_an_import(model: Any) -> None:
    from lib.schedules import gpipe, pipeline

    await pipeline(gpipe)(model)


async def by_a_module(model: Any) -> None:
    await other.pipeline(other.gpipe)(model)


def in_a_closure(order: Any) -> Callable[[Any], Any]:
    async def schedule(model: Any) -> None:
        await schedules.pipeline(order)(model)

    return schedule


BORROWERS = [theirs, by_a_helper, by_an_import, by_a_module, in_a_closure(schedules.gpipe), partial(theirs)]


@pytest.mark.parametrize("definition", BORROWERS)
def test_play_refuses_it_as_the_grader_would(definition: Any, capsys: pytest.CaptureFixture[str]) -> None:
    result = play("gpipe", definition)
    assert (result.status, result.reason) == ("failed", "rule")
    assert "cannot use lib.schedules" in result.message


def test_play_judges_what_a_player_wrote_while_it_is_imported() -> None:
    from solutions.gpipe import gpipe

    assert "lib.schedules" in __import__("sys").modules
    assert play("gpipe", gpipe).status == "passed"


def test_play_without_targets_may_use_it_too() -> None:
    from lib.schedules import gpipe, pipeline

    result = play(pipeline(gpipe), size=(2, 4, 2), costs="stages")
    assert (result.status, result.report.timesteps) == ("correct", 3 * (4 + 1))


SOLUTION = (Path(__file__).parents[2] / "solutions" / "gpipe.py").read_text(encoding="utf-8")
DRAWN = f"""
import drawing
from lib import run
{SOLUTION}
assert "33.3 steps" in drawing.text(run(gpipe, 8, 4, 4).trace)
"""


@pytest.mark.slow
def test_a_graded_file_may_still_draw() -> None:
    """A picture names a schedule by those of lib.schedules; where these are withheld, it does without."""
    verdict = graded(DRAWN)
    assert verdict.status == "passed", verdict.message

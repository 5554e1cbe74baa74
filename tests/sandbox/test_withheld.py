"""No graded schedule comes from lib.pipelines, and no graded layout from a planner; free play may use both."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lib import layout as layouts
from lib import pipelines as schedules
from lib.layout import plan
from lib.layout.notation import graph_to_data
from puzzles import play
from puzzles.judge.session import run_in
from puzzles.sandbox.limits import Limits
from puzzles.tracks import TRACKS
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support.commands import puzzles
from tests.support.trust import trusted
from tests.support.verdicts import session_of, verdict_on

__all__ = ["trusted"]

PATIENT = Limits(seconds=60)

BORROWED = """
from lib.pipelines import gpipe as order, pipeline

async def gpipe(model):
    await pipeline(order)(model)
"""
WAYS = {
    "at the top": (BORROWED, 2),
    "in the function": (
        """
async def gpipe(model):
    from lib.pipelines import gpipe as order, pipeline
    await pipeline(order)(model)
""",
        3,
    ),
    "of a module in it": ("from lib.pipelines.orders import gpipe", 1),
    "from the package": (
        """
async def gpipe(model):
    from lib import pipelines
    await pipelines.pipeline(pipelines.gpipe)(model)
""",
        3,
    ),
    "by name": (
        """
from importlib import import_module
def gpipe(model):
    theirs = import_module("lib.pipelines")
    return theirs.pipeline(theirs.gpipe)(model)
""",
        4,
    ),
    "as text": (
        """
import lib
def gpipe(model):
    exec(open(lib.__path__[0] + "/pipelines/orders.py").read(), {})
""",
        4,
    ),
}


@pytest.mark.parametrize(
    "way", [*list(WAYS)[:2], *(pytest.param(way, marks=pytest.mark.slow) for way in list(WAYS)[2:])]
)
def test_a_graded_schedule_cannot_use_it(way: str) -> None:
    source, line = WAYS[way]
    verdict = verdict_on("gpipe", source, PATIENT)
    assert (verdict.status, verdict.stars) == ("failed", 0)
    assert verdict.message.startswith(f"line {line}: ")
    assert "lib.pipelines" in verdict.message
    assert "write it yourself" in verdict.message


def test_the_same_file_runs_where_nothing_is_graded() -> None:
    with session_of(BORROWED, PATIENT) as session:
        session.read()
        assert run_in(session, TRACKS["schedule"], "gpipe", {"size": [8, 4, 4]}, 20).failure is None


@pytest.mark.slow
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
    from lib.pipelines import gpipe, pipeline

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
    assert "cannot use lib.pipelines" in result.message


def test_play_judges_what_a_player_wrote_while_it_is_imported() -> None:
    from solutions.gpipe import gpipe

    assert "lib.pipelines" in __import__("sys").modules
    assert play("gpipe", gpipe).status == "passed"


def test_play_without_targets_may_use_it_too() -> None:
    from lib.pipelines import gpipe, pipeline

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
    """A picture names a schedule by those of lib.pipelines; where these are withheld, it does without."""
    verdict = verdict_on("gpipe", DRAWN, PATIENT)
    assert verdict.status == "passed", verdict.message


PLANNED = """
from lib.layout import Graph

def ffn(graph: Graph) -> None:
    from lib.layout import plan
    op = plan(graph, memory_cap=40_000).operators["matmul2"]
    graph.shard("matmul2", op.strategy, out=op.output.splits if op.reduction else None)
"""

WAYS_TO_A_PLANNER = """
import gc, importlib, importlib.util, os, pickle, pkgutil, runpy, sys
import lib.layout
import lib.layout

FOLDER = lib.layout.__path__[0]

def from_the_package():
    from lib.layout import plan
    return plan

def from_its_module():
    from lib.layout.exact import plan
    return plan

def by_relative_name():
    return importlib.import_module(".completion", "lib.layout").complete

def of_spmd():
    from lib.layout.spmd import complete
    return complete

def from_a_file(loader=None):
    spec = importlib.util.spec_from_file_location("lib.layout.mine", FOLDER + "/completion.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.complete

def as_text(path=FOLDER + "/integer_program.py"):
    names = {"__name__": "lib.layout.mine", "__package__": "lib.layout"}
    exec(open(path).read(), names)
    return names["IntegerProgram"]

def from_an_open_folder():
    at = os.open(FOLDER, os.O_RDONLY)
    return as_text(os.dup(os.open("integer_program.py", os.O_RDONLY, dir_fd=at)))

def in_memory():
    return next(x for x in gc.get_objects() if getattr(x, "__module__", "") == "lib.layout.completion")

WAYS = {
    "from the package": from_the_package,
    "from its module": from_its_module,
    "as an attribute": lambda: lib.layout.plan,
    "complete": lambda: lib.layout.complete,
    "by getattr": lambda: getattr(sys.modules["lib.layout"], "plan"),
    "reloaded": lambda: importlib.reload(sys.modules["lib.layout"]).plan,
    "by name": lambda: importlib.import_module("lib.layout.exact").plan,
    "by relative name": by_relative_name,
    "by __import__": lambda: __import__("lib.layout.integer_program", fromlist=["x"]).IntegerProgram,
    "by its choices": lambda: importlib.import_module("lib.layout.choices").Choices,
    "by pickle": lambda: pickle.loads(b"clib.layout.exact\\nplan\\n."),
    "by pkgutil": lambda: pkgutil.resolve_name("lib.layout.exact:plan"),
    "by runpy": lambda: runpy.run_module("lib.layout.completion")["complete"],
    "by its loader": lambda: lib.layout.__spec__.loader.get_data(FOLDER + "/completion.py"),
    "from a file": from_a_file,
    "as text": as_text,
    "from an open folder": from_an_open_folder,
    "of spmd": of_spmd,
    "in memory": in_memory,
}

def ffn(graph):
    found, refused = [], []
    for name, way in WAYS.items():
        try:
            found += [name] if way() else []
        except (Exception, SystemExit) as why:
            refused.append(name)
    raise RuntimeError(f"{len(found)} of {len(WAYS)} found one, not {refused}" if found else "none found one")
"""


def test_a_graded_layout_cannot_use_a_planner() -> None:
    verdict = verdict_on("ffn", PLANNED, PATIENT)
    assert (verdict.status, verdict.stars) == ("failed", 0)
    assert verdict.message.startswith("line 5: ")


def test_no_way_leads_a_graded_layout_to_a_planner() -> None:
    assert "none found one" in verdict_on("ffn", WAYS_TO_A_PLANNER, PATIENT).message
    with session_of(WAYS_TO_A_PLANNER, PATIENT) as session:
        session.read()
        request = {"graph": graph_to_data(LAYOUT_PUZZLES["ffn"].graph())}
        done = run_in(session, TRACKS["layout"], "ffn", request, 60)
    assert "19 of 19" in done.failure.message, "where nothing is graded"


def by_the_planner(graph: Any) -> None:
    for name, op in plan(graph).operators.items():
        graph.shard(name, op.strategy)


def by_a_package(graph: Any) -> None:
    layouts.complete(graph, {})


@pytest.mark.parametrize("definition", [by_the_planner, by_a_package])
def test_play_refuses_a_planner_of_layouts(definition: Any) -> None:
    result = play("ffn", definition)
    assert (result.status, result.reason) == ("failed", "rule")

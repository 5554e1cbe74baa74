"""Layout and engine puzzles as the page plays them: judged from a record, on what a browser has."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.page.build import LEFT_OUT
from puzzles.page.in_browser import api, player
from puzzles.tracks import ALL
from puzzles.tracks.layout import LAYOUT_PUZZLES
from tests.support.engine_trials import REFERENCES
from tests.support.numpy_stand_in import write_wheel
from tests.support.suspending import with_suspended_tasks
from tests.test_imports import ROOT


async def answered(slug: str, text: str) -> Any:
    """The verdict on a code, and its picture: one Python runs it, another one judges the record."""
    record = json.loads(await player.answer("run", json.dumps([slug, text])))["value"]
    verdict = json.loads(await api.answer("judge", json.dumps([slug, record])))["value"]
    return verdict, json.loads(await api.answer("picture", json.dumps(["layer", False])))["value"]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", LAYOUT_PUZZLES)
def test_a_layout_is_completed_judged_and_drawn(slug: str) -> None:
    text = (ROOT / "solutions" / "layout" / f"{slug}.py").read_text(encoding="utf-8")
    verdict, picture = asyncio.run(answered(slug, text))
    assert (verdict["status"], verdict["stars"]) == ("passed", 3)
    assert picture.startswith("<svg")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_a_class_is_run_and_judged(slug: str) -> None:
    text = REFERENCES[slug].read_text(encoding="utf-8")
    verdict, picture = with_suspended_tasks(lambda: answered(slug, text))
    assert verdict["status"] == "passed"
    assert [one["target"] for one in verdict["measures"]] == [*ALL[slug].words.targets(ENGINE_PUZZLES[slug]).values()]
    assert picture == ""


@pytest.mark.parametrize(
    ("slug", "text", "facts"),
    [
        ("matmul", "def matmul(graph):\n    graph.shard('nothing', ((1, 1), (1, 1)))", ["nothing"]),
        ("matmul", "x = 1", ["write 'def matmul(graph):'"]),
        ("FSDP", "x = 1", ["write 'class FSDP(ShardedEngine):'"]),
        ("FSDP", "def FSDP(x): pass", ["is not a class"]),
    ],
)
def test_a_mistake_has_its_words(slug: str, text: str, facts: list[str]) -> None:
    verdict, _ = with_suspended_tasks(lambda: answered(slug, text))
    assert (verdict["status"], verdict["stars"]) == ("failed", 0)
    assert all(fact in verdict["message"] for fact in facts)


@pytest.mark.parametrize("sent", ["[]", "3", "{", "{}", '{"results": 1}'])
@pytest.mark.parametrize("slug", ["matmul", "FSDP"])
def test_a_forged_run_has_no_stars(slug: str, sent: str) -> None:
    record = {"problem": None, "sketch": ["", None], "line": 0, "runs": [[sent, None]]}
    verdict = json.loads(asyncio.run(api.answer("judge", json.dumps([slug, record]))))["value"]
    assert (verdict["status"], verdict["stars"]) == ("failed", 0)
    assert verdict["message"]


IMPORTS = """
import sys
from types import ModuleType

wheel, absent = sys.argv[1], sys.argv[2].split()

class NotHere:
    def find_spec(self, name, path=None, target=None):
        if name.replace(".", "/").startswith(tuple(absent)):
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)

import chalk  # what it imports of itself is not in the archive
sys.meta_path.insert(0, NotHere())
sys.modules |= {"pyodide": ModuleType("pyodide"), "pyodide.ffi": ModuleType("pyodide.ffi")}
sys.modules["pyodide.ffi"].run_sync = print
sys.path.insert(0, wheel)
sys.platform = "emscripten"
import numpy
import lib.engine, lib.layout, drawing.layout_graph
import puzzles.sandbox.worker.stages.engine_trial, puzzles.sandbox.worker.stages.functions
import puzzles.tracks.engine.judge, puzzles.tracks.layout.judge, puzzles.tracks.layout.show
print(numpy.__version__, sys.modules["lib.engine.transport"].greenlet.__module__)
"""


@pytest.mark.slow
def test_what_is_imported_is_in_a_browser(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path / "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl")
    absent = "greenlet scipy torch jax mpi4py rich click multiprocessing unittest doctest pydoc"
    absent = f"{absent} {' '.join(name for name in LEFT_OUT if name.startswith('puzzles'))}"
    done = subprocess.run([sys.executable, "-c", IMPORTS, str(wheel), absent], cwd=ROOT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("0 lib.engine.suspended\n", "")

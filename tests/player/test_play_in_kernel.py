"""`play` in a live kernel: out of order, again after an exception, two at once, interrupted; and in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.support.kernel import ROOT, Kernel, live_kernel

SOLUTIONS = "from solutions.ddp import ddp\nfrom solutions.fsdp import fsdp\n"
TASKS = """
import asyncio
print([name for name in map(repr, asyncio.all_tasks()) if "puzzles" in name or "_rank" in name])
"""


@pytest.fixture(scope="module")
def kernel() -> Iterator[Kernel]:
    with live_kernel() as kernel:
        kernel.run("from lib import Model, WeightGrad\nfrom puzzles import play")
        yield kernel


@pytest.mark.slow
def test_a_starter_is_not_attempted_then_wrong_then_right(kernel: Kernel) -> None:
    assert "DDP: NOT ATTEMPTED" in run_and_play(kernel, PUZZLES["ddp"].starter).upper()
    wrong = PUZZLES["ddp"].starter.replace("# ----- end", "model.loss(activations[0])\n    # ----- end")
    shown = run_and_play(kernel, wrong)
    assert "rank 0, t=0, loss()" in shown
    assert "model.loss(activations[0])" in shown
    assert "Traceback" not in shown
    assert "ddp: Solved!" in run_and_play(kernel, SOLUTIONS)


def run_and_play(kernel: Kernel, cell: str) -> str:
    assert kernel.run(cell) == ""
    return kernel.run("await play('ddp', ddp)")


def test_the_result_is_shown_once_and_again_when_asked_for(kernel: Kernel) -> None:
    kernel.run(SOLUTIONS)
    shown = kernel.run("result = await play('ddp', ddp)\nresult")
    assert shown.count("text/html") == 1
    assert kernel.run("result").count("text/html") == 1
    assert kernel.run("print(result, result.as_dict()['stars'])") == "<ddp: passed, ★★☆> 2\n"


@pytest.mark.slow
def test_it_needs_no_await(kernel: Kernel) -> None:
    kernel.run(SOLUTIONS)
    shown = kernel.run("play('ddp', ddp)")
    assert "ddp: Solved!" in shown
    assert shown.count("text/html") == 1
    kernel.run("later = play('ddp', ddp)")
    assert kernel.run("print(await later)") == "<ddp: passed, ★★☆>\n"
    assert kernel.run(TASKS) == "[]\n"


@pytest.mark.slow
def test_two_at_once(kernel: Kernel) -> None:
    kernel.run(SOLUTIONS + "import asyncio")
    shown = kernel.run("print(await asyncio.gather(play('ddp', ddp), play('fsdp', fsdp), play('ddp', ddp)))")
    assert (shown.count("text/html"), shown.count("passed, ★★☆")) == (3, 3)


@pytest.mark.slow
def test_after_an_exception_and_out_of_order(kernel: Kernel) -> None:
    kernel.run(SOLUTIONS)
    crashed = kernel.run("async def half(model):\n    await model.allreduce(nonsense, 0)\nawait play('ddp', half)")
    assert "NameError" in crashed
    assert "no puzzle 'dpd'" in kernel.run("await play('dpd', ddp)")
    assert "fsdp: Solved!" in kernel.run("await play('fsdp', fsdp)")
    assert "ddp: Solved!" in kernel.run("await play('ddp', ddp)")
    assert kernel.run(TASKS) == "[]\n"


def test_the_classic_way_shows_a_refusal_without_the_machinery(kernel: Kernel) -> None:
    kernel.run("""
import asyncio
from lib import Dist
async def early(model):
    model.loss(model.get_activation([0]))
""")
    shown = kernel.run("dist = Dist(2)\nawait asyncio.gather(*[early(Model(rank, dist)) for rank in range(2)])")
    assert shown.startswith("RuleError: rank 0, t=0, loss(): ")
    places = [line.split(":")[0].strip() for line in kernel.traceback.splitlines()[1:]]
    assert places == ["line 2, in <module>", "line 4, in early"]


def test_a_spinning_cell_is_interrupted(kernel: Kernel) -> None:
    spin = """
async def spin(model):
    print("spinning", flush=True)
    while True:
        pass
await play("ddp", spin, seconds=600)
"""
    shown = kernel.run(spin, lambda text: kernel.manager.interrupt_kernel() if "spinning" in text else None)
    assert "interrupted" in shown
    assert "Traceback" not in shown
    assert kernel.run(TASKS) == "[]\n"


@pytest.mark.slow
def test_a_waiting_cell_is_interrupted(kernel: Kernel) -> None:
    wait = """
import asyncio
async def wait(model):
    print("waiting", flush=True)
    while True:
        await asyncio.sleep(0)
await play("basic", wait)
"""
    kernel.run(wait, lambda text: kernel.manager.interrupt_kernel() if "waiting" in text else None)
    assert kernel.run(TASKS) == "[]\n"
    assert kernel.run(SOLUTIONS + "(await play('ddp', ddp)).status").endswith("'passed'\n")


@pytest.mark.slow
def test_in_the_terminal_of_ipython() -> None:
    code = SOLUTIONS + "from puzzles import play\nawait play('ddp', ddp)\nplay('fsdp', fsdp)\n"
    command = [sys.executable, "-m", "IPython", "--no-banner", "--colors=NoColor", "--quick", "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert "ddp: Solved! 5.1 timesteps" in done.stdout
    assert "<svg" not in done.stdout
    assert "fsdp: Solved! 19.9 timesteps" in done.stdout


IN_IPYTHON = """
import sys
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().run_cell(sys.argv[1])
"""


@pytest.mark.slow
def test_next_to_another_lib_one_sentence_says_what_to_do(tmp_path: Path) -> None:
    """As in a clone of the original puzzles, whose folder comes first in a kernel that was started there."""
    (tmp_path / "lib.py").write_text("class Model: ...\n", encoding="utf-8")
    package = ROOT / "puzzles" / "package"
    for cell, advice in (
        ("from puzzles import play", "'import training_puzzles' first, or work in another folder"),
        ("import lib, training_puzzles", "'import training_puzzles' before anything that imports it"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", IN_IPYTHON, cell],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{package}", "IPYTHONDIR": str(tmp_path / "profile")},
        )
        shown = done.stdout.strip()
        assert str(tmp_path / "lib.py") in shown
        assert advice in shown
        assert len(shown.splitlines()) == 1

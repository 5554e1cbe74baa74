"""`puzzles torch` where it does not work: a rank or the worker ends, a run is refused; what each message advises works.

PyTorch itself is not needed: a small module stands in for it.
"""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from docs.generate import gallery
from lib import PuzzleError
from lib.engine.executors.forked import how_it_ended
from lib.schedules import one_f_one_b
from puzzles.catalog.schedule import PUZZLES
from puzzles.commands.main import main
from puzzles.pytorch import run as running
from puzzles.pytorch.run import Scheduled, run_all
from tests.support.schedules.random_pipelines import played
from tests.test_imports import ROOT

STAND_IN = """
import os
def set_num_threads(number): pass
os.mkfifo("ends")
if os.environ["WHO_ENDS"] == "worker": os.kill(os.getpid(), int(os.environ["HOW"]))
"""
ENDS = '''
import os
def init_process_group(backend, init_method, rank, world_size):
    """One rank ends; the others notice, and complain as PyTorch does."""
    if rank == int(os.environ["WHO_ENDS"]):
        pipe = open("ends", "wb")  # the others notice when this process ends
        how = int(os.environ["HOW"])
        os._exit(-how) if how < 0 else os.kill(os.getpid(), how)
    with open("ends", "rb") as pipe:
        pipe.read()
    raise ConnectionError("closed by a peer")
'''


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schedules = tmp_path / "torch" / "distributed" / "pipelining" / "schedules.py"
    schedules.parent.mkdir(parents=True)
    schedules.write_text("")
    (schedules.parent / "__init__.py").write_text("")
    (schedules.parents[1] / "__init__.py").write_text(ENDS)
    (schedules.parents[2] / "__init__.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(running, "missing", lambda: "")


@pytest.mark.sampled(5)
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize(
    ("who", "how"),
    [
        *((who, how) for who in ("0", "2", "worker") for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV)),
        *((who, -3) for who in ("0", "2")),
    ],
)
def test_who_ended_and_how_is_said(who: str, how: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WHO_ENDS", who)
    monkeypatch.setenv("HOW", str(int(how)))
    with pytest.raises(PuzzleError) as why:
        run_all([Scheduled.of("x", played(one_f_one_b(3, 3)))], 60)
    said = str(why.value)
    assert said.startswith("PyTorch failed: " if who == "worker" else f"PyTorch failed on rank {who}: ")
    assert ("exit code 3" if how < 0 else signal.Signals(how).name) in said
    assert ("memory" if how == signal.SIGKILL else "run it again") in said


def test_a_signal_without_a_name_has_its_number() -> None:
    assert "signal 60" in how_it_ended(-60)


# --- What a refusal advises ---


def puzzles(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)))


def refusals() -> list[tuple[str, str]]:
    found = []
    for slug in PUZZLES:
        try:
            Scheduled.of(slug, gallery.solved(slug).trace)
        except PuzzleError as why:
            found.append((slug, str(why)))
    return found


def test_every_option_that_a_refusal_advises_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of all puzzles: the command is typed as the refusal says, and then PyTorch is asked to run it."""
    asked: list[Scheduled] = []

    def instead(schedules: list[Scheduled], seconds: float, **options: object) -> list[object]:
        asked.extend(schedules)
        raise PuzzleError("that is far enough")

    monkeypatch.setattr(running, "missing", lambda: "")
    monkeypatch.setattr(running, "run_all", instead)
    advised = {slug: re.findall(r"(--\w+) ([\w=,]+)", said) for slug, said in refusals()}
    advised = {slug: options for slug, options in advised.items() if options}
    assert advised == {
        "breadth_first": [("--size", "4,4,2"), ("--mesh", "dp=1,pp=2")],
        "pipeline_fsdp": [("--size", "4,1,4")],
        "zb_h2": [("--steps", "1")],
        "weight_versions": [("--steps", "1")],
    }
    for slug, options in advised.items():
        typed = [word for option in options for word in option]
        result = puzzles("torch", ROOT / "solutions" / f"{slug}.py", slug, *typed)
        assert "that is far enough" in result.output, result.output
    assert [schedule.pipeline.replicas for schedule in asked] == [1, 1, 1, 1]


REWRITTEN = {"basic": "grad_accum", "pipeline": "gpipe", "checkpoint": "gpipe"}
"""By puzzle whose solution is refused for what it does: one that does the same work as the refusal says."""


@pytest.mark.slow
def test_what_else_is_advised_is_what_another_solution_does(capsys: pytest.CaptureFixture[str]) -> None:
    said = dict(refusals())
    for refused, other in REWRITTEN.items():
        assert re.search("take them one by one|leave that to the stage", said[refused])
        assert other not in said

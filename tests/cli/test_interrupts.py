"""Ctrl-C, as a real SIGINT to every process of a command: one sentence, exit code 130, and nothing lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.support import course, relay

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs signals")

ROOT = Path(__file__).parents[2]
PATIENCE = 60.0
"""Seconds until a command that does not end is a failure."""

ASK = "puzzles.sandbox.client:SandboxClient.ask"
"""What waits for a run in the sandbox."""

PROGRAM = """
import signal, sys
from importlib import import_module

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
module, _, path = sys.argv.pop(1).partition(":")
owner = import_module(module)
*owners, name = path.split(".")
for part in owners:
    owner = getattr(owner, part)
works = getattr(owner, name)

def begin(*given, **more):
    print("begun", flush=True)
    return works(*given, **more)

setattr(owner, name, begin)
from puzzles.__main__ import main
main()
"""
"""The command `puzzles`, which says when it calls a certain function; that one then works as ever."""

LOOP = course.loop("basic")
LONG = ("--limit", "time=1000s")


def environment() -> Mapping[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def interrupted(works: str, *words: object, calls: int = 1) -> subprocess.CompletedProcess[str]:
    """A command that got Ctrl-C during the given call of `works`."""
    command = [sys.executable, "-c", PROGRAM, works, *map(str, words)]
    process = subprocess.Popen(
        command, env=environment(), text=True, start_new_session=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        shown = [process.stdout.readline()]
        while shown[-1] and shown.count("begun\n") < calls:
            shown.append(process.stdout.readline())
        os.killpg(process.pid, signal.SIGINT)
        rest, said = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess(command, process.returncode, "".join(shown) + rest, said)


def check(ended: subprocess.CompletedProcess[str]) -> str:
    """The sentence with which a command ended."""
    assert "begun\n" in ended.stdout, ended.stderr
    (sentence,) = ended.stderr.splitlines()
    assert (ended.returncode, sentence[-1]) == (130, "."), sentence
    return sentence


@pytest.fixture
def looping(tmp_path: Path) -> Path:
    file = tmp_path / "loop.py"
    file.write_text(LOOP)
    return file


@pytest.mark.sampled(1)
@pytest.mark.parametrize("words", ["grade {} --limit time=1000s", "run {} basic --time-limit 1000", "watch {}"])
def test_a_command_that_waits_for_a_run_ends(words: str, looping: Path) -> None:
    check(interrupted(ASK, *words.format(looping).split()))


@pytest.mark.slow
def test_checking_a_teacher_s_puzzle_ends(tmp_path: Path) -> None:
    folder = relay.finished_folder(tmp_path / "week3")
    (solution,) = (folder / "solutions").glob("relay_schedule.py")
    solution.write_text("async def relay_schedule(model):\n    while True:\n        pass\n")
    check(interrupted(ASK, "check", folder, "--time-limit", "1000"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("works", "words"),
    [
        ("lib.pipelines.solver:solve", "solve --ranks 32 --microbatches 2000 --effort 100"),
        ("lib.planning:search", "plan --model llama-3-405b --gpus 131072 --batch 131072"),
    ],
)
def test_a_command_that_computes_ends(works: str, words: str) -> None:
    check(interrupted(works, *words.split()))


def test_a_command_that_reads_ends(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.json")  # nobody writes to it
    check(interrupted("puzzles.player.profile:profile", "profile", tmp_path / "trace.json"))


def test_a_command_that_is_still_loading_ends() -> None:
    """An import raises what an interrupt raises."""
    program = (
        "import sys\nclass Finder:\n def find_spec(self, name, *_):\n"
        "  if name == 'puzzles.cli.main':\n   raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Finder())\nimport puzzles.__main__"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), text=True, capture_output=True, check=False
    )
    assert (done.returncode, len(done.stderr.splitlines())) == (130, 1), done.stderr


def write_class(folder: Path) -> Path:
    """The two that end are the largest, so they are graded first; the others loop."""
    here = folder / "class"
    here.mkdir()
    for name in ("ann", "ben"):
        (here / f"{name}.py").write_text(course.solution("basic") + "# more\n" * 100)
    for name in ("cleo", "dan"):
        (here / f"{name}.py").write_text(LOOP)
    return here


@pytest.mark.slow
def test_what_is_graded_of_a_class_stays_and_is_not_graded_again(tmp_path: Path, home_of_its_own: Path) -> None:
    here = write_class(tmp_path)
    words = ("grade", here, "--trust", "--puzzle", "basic", "-j", "2", "--json", *LONG)
    sentence = check(interrupted("puzzles.judge.checkpoint:Checkpoint.add", *words, calls=2))
    assert "--resume" in sentence
    (kept,) = (home_of_its_own / "runs").iterdir()
    done = [json.loads(line)["graded"]["path"] for line in kept.read_text().split("\n") if line]
    assert set(done) <= {str(here / "ann.py"), str(here / "ben.py")}
    told = re.findall(r"\d+", sentence)
    assert 1 <= int(told[0]) <= len(done), "the first was written before the second"
    assert told[1] == "4"
    for name in ("cleo", "dan"):
        (here / f"{name}.py").write_text(course.solution("basic"))
    again = subprocess.run(
        [sys.executable, "-m", "puzzles", *map(str, words), "--resume"],
        env=environment(), text=True, capture_output=True, check=False,
    )  # fmt: skip
    rows = json.loads(again.stdout)["files"]
    assert [row["results"][0]["status"] for row in rows] == ["passed"] * 4
    assert not kept.exists(), "nothing is left to resume"


@pytest.mark.slow
def test_what_is_graded_stays_while_reports_are_written(tmp_path: Path, home_of_its_own: Path) -> None:
    here = tmp_path / "class"
    here.mkdir()
    for name in ("ann", "ben"):
        (here / f"{name}.py").write_text(course.solution("basic"))
    book = tmp_path / "book.csv"
    os.mkfifo(book)  # nobody reads it
    course.rules(tmp_path, "submissions = 'class'\ngradebook = 'book.csv'\n")
    words = ("class", tmp_path, "--trust", "--puzzle", "basic", "-j", "2")
    assert "2 of 2" in check(interrupted("puzzles.teaching.export:write_reports", *words))
    (kept,) = (home_of_its_own / "runs").iterdir()
    assert kept.read_text().count('"graded"') == 2

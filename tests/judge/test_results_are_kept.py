"""Results are shown and written whatever fails: a full disk, a closed output, a name too long, a broken checkpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from puzzles.judge.checkpoint import Checkpoint, GradingJob
from puzzles.judge.progress import HOME
from puzzles.judge.submission import submissions
from puzzles.judge.verdict import Graded, Verdict
from puzzles.sandbox.limits import Limits
from puzzles.teaching import export
from tests.support.commands import csv_rows, puzzles
from tests.support.course import rules
from tests.support.fake_grading import real_verdict, write_verdicts
from tests.support.trust import trusted  # noqa: F401

ROOT = Path(__file__).parents[2]
SOLVED = (ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")
FULL = "/dev/full"
"""A device on which every write fails, as on a full disk."""

needs_full = pytest.mark.skipif(not os.path.exists(FULL), reason="Linux has it")
pytestmark = pytest.mark.usefixtures("trusted", "stated_verdicts")


@pytest.fixture
def a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "class"
    folder.mkdir()
    with_verdicts(folder)
    return folder


def with_verdicts(folder: Path, trace: str = "") -> None:
    write_verdicts(folder / "ann.py", real_verdict("basic", trace=trace))
    write_verdicts(folder / "ben.py", real_verdict("basic", "failed", 0, reason="crash", trace=trace))


def grade(*arguments: str) -> Result:
    result = puzzles("grade", "--puzzle", "basic", *arguments)
    return result


# --- Reports ---


@needs_full
def test_a_report_that_cannot_be_written_affects_neither_the_results_nor_the_others(a_class: Path) -> None:
    Path("full.json").symlink_to(FULL)
    outputs = ("-o", "full.json", "-o", "t.csv", "-o", "ann.py/page.html")
    rules(Path(), "one_student = true\ngradebook = 'class'\n[points]\nbasic = 1\n")
    result = puzzles("class", ".", "class", *outputs)
    assert "passed" in result.stdout
    assert [row["status"] for row in csv_rows("t.csv")] == ["passed"], "the better of the two files"
    assert Path("ann.py/page.html").is_file()
    assert result.exit_code == 2
    assert "full.json:" in result.stderr


def test_a_report_that_breaks_affects_no_other(a_class: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*_: Any) -> str:
        raise LookupError("no such\x1b thing")

    monkeypatch.setattr(export, "gradescope", breaks)
    result = grade("class/ann.py", "-o", "r.json", "-o", "t.csv")
    assert result.exit_code == 2
    assert "r.json: LookupError: no" in result.stderr
    assert len(csv_rows("t.csv")) == 1


@pytest.mark.slow
def test_a_name_of_254_letters_has_its_traces(a_class: Path) -> None:
    with_verdicts(a_class, trace="{}")
    write_verdicts(a_class / ("é" * 125 + ".py"), real_verdict("basic", trace="{}"))
    result = grade("class", "--traces", "traces")
    assert result.exit_code == 1, result.stderr
    assert sorted(path.parent.name[:6] for path in Path("traces").glob("*/basic.json")) == [
        "0000_a",
        "0001_b",
        "0002_é",
    ]


@pytest.mark.slow
def test_traces_that_cannot_be_written_are_reported_once(a_class: Path) -> None:
    with_verdicts(a_class, trace="{}")
    Path("traces").write_text("a file, and no folder")
    result = grade("class", "--traces", "traces")
    assert (result.exit_code, result.stderr.count("Error")) == (2, 1)
    assert "1 passed" in result.stdout


# --- The output ---


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize("more", [("--json",), pytest.param((), marks=pytest.mark.slow)])
def test_an_output_that_is_full_costs_no_report(a_class: Path, more: tuple[str, ...]) -> None:
    (a_class / "ann.py").write_text(SOLVED)  # another process runs it
    command = [sys.executable, "-m", "puzzles", "grade", "class/ann.py", "--puzzle", "basic", "-o", "t.csv", *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with open(FULL, "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1, "one sentence, and no traceback"
    assert [row["status"] for row in csv_rows("t.csv")] == ["passed"]


@pytest.mark.slow
@pytest.mark.parametrize("more", [("--json",), ()])
def test_an_output_that_nobody_reads_costs_no_report(a_class: Path, more: tuple[str, ...]) -> None:
    (a_class / "ann.py").write_text(SOLVED)  # another process runs it
    command = [sys.executable, "-m", "puzzles", "grade", "class/ann.py", "--puzzle", "basic", "-o", "t.csv", *more]
    read, write = os.pipe()
    os.close(read)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, ""), "as with head: the reader has seen enough"
    assert [row["status"] for row in csv_rows("t.csv")] == ["passed"]


# --- The checkpoint ---


def job() -> GradingJob:
    return GradingJob(("basic",), Limits(seconds=5))


@pytest.mark.slow
@needs_full
def test_a_checkpoint_on_a_full_disk_costs_only_the_resuming(a_class: Path) -> None:
    files = submissions(["class"])
    with Checkpoint.of([file.path for file in files], job(), False) as checkpoint:
        pass
    checkpoint.path.unlink()
    checkpoint.path.symlink_to(FULL)
    result = grade("class")
    assert "1 passed" in result.stdout
    assert (result.exit_code, result.stderr.count("Warning: ")) == (1, 1)


def test_a_home_that_cannot_be_written_costs_only_the_resuming(a_class: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(a_class / "ann.py"))
    result = grade("class")
    assert "1 passed" in result.stdout


ROW = Graded("class/ann.py", (Verdict("basic", "schedule", "passed", {"time": 17}),)).row()
JUNK = {
    "bytes": b"\xff\xfe\x00 nothing",
    "nested": b"[" * 100_000,
    "another type": b"7",
    "no verdicts": json.dumps({"key": "k", "graded": {"path": "class/ann.py", "verdicts": 7}}).encode(),
}


@pytest.mark.parametrize("junk", JUNK.values(), ids=JUNK)
def test_a_checkpoint_of_junk_is_one_sentence(junk: bytes) -> None:
    with Checkpoint.of(["class/ann.py"], job(), False) as checkpoint:
        checkpoint.add(Graded.of_row(ROW), b"x")
    good = checkpoint.path.read_bytes()
    checkpoint.path.write_bytes(junk + b"\n" + junk + b"\n" + good + b"\n" + junk)
    with Checkpoint.of(["class/ann.py"], job(), True) as again:
        assert len(again.warnings) == 1
        assert again.warnings[0].startswith("2 of 4 lines in ")
        assert again.known("class/ann.py", b"x") == Graded.of_row(ROW)

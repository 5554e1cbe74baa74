"""What `puzzles grade` leaves: results whatever fails, and stars for a player's own files only."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from rich.console import Console

from puzzles.cli.watch import WatchState
from puzzles.judge import progress
from puzzles.judge.checkpoint import Checkpoint, GradingJob
from puzzles.judge.submission import submissions
from puzzles.judge.verdict import Graded, Verdict
from puzzles.sandbox.limits import Limits
from puzzles.teaching import export
from puzzles.tracks import ALL
from tests.support.commands import ROOT, csv_rows, puzzles, said
from tests.support.course import rules
from tests.support.fake_grading import real_verdict, stating, write_verdicts

COLUMNS = 200
pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "trusted", "stated_verdicts")

# --- Results whatever fails: a full disk, a closed output, a name too long, a broken checkpoint ---


SOLVED = (ROOT / "solutions" / "basic.py").read_text(encoding="utf-8")
FULL = "/dev/full"
"""A device on which every write fails, as on a full disk."""

needs_full = pytest.mark.skipif(not os.path.exists(FULL), reason="Linux has it")


@pytest.fixture
def a_class(tmp_path: Path) -> Path:
    folder = tmp_path / "class"
    folder.mkdir()
    with_verdicts(folder)
    return folder


def with_verdicts(folder: Path, trace: str = "") -> None:
    write_verdicts(folder / "ann.py", real_verdict("basic", trace=trace))
    write_verdicts(folder / "ben.py", real_verdict("basic", "failed", 0, reason="crash", trace=trace))


def grade(*arguments: str) -> Result:
    return puzzles("grade", "--puzzle", "basic", *arguments)


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


# --- `puzzles grade` adds to a player's stars for the player's own files only, whatever it shows or writes ---


BASIC = stating(real_verdict("basic"))

FORMS = {
    "text": (),
    **{name: (name,) for name in ("--json", "--why", "--one-student")},
    **{name: ("-o", f"out.{name}") for name in ("html", "csv", "json")},
    "traces": ("--traces", "out.traces"),
    "pages": ("-o", "pages"),
}
"""What `puzzles grade` can show or write."""


def started(path: str) -> str:
    """A file that the player has started and finished."""
    Path(path).parent.mkdir(exist_ok=True)
    said("start", "basic", "-o", path)
    Path(path).write_text(BASIC)
    return path


def linked() -> str:
    Path("link.py").symlink_to(started("mine.py"))
    return "link.py"


def watched() -> str:
    Path("mine.py").write_text(BASIC)
    WatchState("mine.py", Limits(), Console(quiet=True)).begin()
    assert progress.load()["basic"].attempts == 1
    progress.forget()
    return "mine.py"


OWN = {
    "started": lambda: started("mine.py"),
    "in another folder": lambda: started("other/mine.py"),
    "alone in a folder": lambda: str(Path(started("other/mine.py")).parent),
    "by a link": linked,
    "watched": watched,
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["ann.py", "class/ann.py", "copy.py"])
def test_a_file_of_somebody_else_changes_no_progress(name: str, form: str) -> None:
    started("mine.py")  # which the copy has the text of
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(BASIC)
    before = said("status")
    said("grade", name, "--puzzle", "basic", *FORMS[form])
    assert said("status") == before
    assert progress.load() == {slug: progress.PuzzleProgress() for slug in ALL}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whose", OWN)
def test_an_own_file_counts_whatever_is_shown(whose: str, form: str) -> None:
    page = said("grade", OWN[whose](), "--puzzle", "basic", *FORMS[form])
    assert (progress.load()["basic"].attempts, progress.load()["basic"].stars) == (1, 2)
    assert "puzzles watch" not in page


def test_a_class_does_not_count_even_with_an_own_file_in_it() -> None:
    started("class/mine.py")
    Path("class/ann.py").write_text(BASIC)
    said("grade", "class", "--trust", "--puzzle", "basic")
    assert progress.load()["basic"].attempts == 0


def test_what_makes_a_file_count_is_told_where_a_player_may_wonder() -> None:
    told = "'puzzles watch ann.py'"
    Path("ann.py").write_text(BASIC)
    assert told in said("grade", "ann.py")
    assert told not in said("grade", "ann.py", "-o", "a.csv"), "this is a teacher's"
    Path("ann.py").write_text("")
    assert told not in said("grade", "ann.py", code=1), "nothing is attempted"


@pytest.mark.slow
def test_notebooks_count_unless_they_are_solved() -> None:
    said("notebook", "books")
    said("notebook", "solved", "--solved")
    assert all(map(progress.is_own_file, Path("books").iterdir()))
    assert not any(map(progress.is_own_file, Path("solved").iterdir()))


@pytest.mark.parametrize("text", [b"", b"\xff", b"[]", b"no JSON\n\0"])
def test_a_broken_list_of_own_files_counts_as_none(text: bytes, home_of_its_own: Path) -> None:
    (home_of_its_own / "own_files").write_bytes(text)
    Path("mine.py").write_text(BASIC)
    assert not progress.is_own_file("mine.py")
    progress.add_own_file("mine.py")
    progress.add_own_file("mine.py")
    assert progress.is_own_file("mine.py")
    assert (home_of_its_own / "own_files").read_bytes().count(b"mine.py") == 1

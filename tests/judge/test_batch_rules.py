"""Each rule of grading many files and of the checkpoint, with jobs that state their verdicts in this process."""

import os
from collections.abc import Callable, Generator, Iterable
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

import pytest

from puzzles.judge import batch
from puzzles.judge.batch import grade_all
from puzzles.judge.checkpoint import Checkpoint, GradingJob
from puzzles.judge.submission import Content, SourceFile
from puzzles.judge.verdict import LOST, Graded
from puzzles.sandbox.limits import Limits
from tests.support.fake_grading import InlineProcesses
from tests.support.fake_track import Fakes, a_verdict

CLASS = ("ann.py", "bo.py", "cleo.py")
"""Files of 1, 2 and 3 lines."""


class Job(GradingJob):
    """A job whose verdicts are the contents of the files."""

    def grade(self, path: str, source: Content, client: object = None) -> Graded:
        seen.append(path)
        if path in acts:
            acts[path]()
        message = source.decode() if isinstance(source, bytes) else str(source)
        return Graded(path, (a_verdict(message=message),))

    grade_with_kept_client = grade


seen: list[str] = []
"""The files that were graded, in order."""
acts: dict[str, Callable[[], None]] = {}
"""By file: what happens while it is graded."""


def job(**more: Any) -> GradingJob:
    return Job(("fake_a",), Limits(), **more)


@pytest.fixture(autouse=True)
def _class(fakes: Fakes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(batch, "LocalProcesses", InlineProcesses)
    seen.clear()
    acts.clear()
    for number, name in enumerate(CLASS, 1):
        Path(name).write_text("x\n" * number)


def files(*names: str) -> list[SourceFile]:
    return [SourceFile(name) for name in names or CLASS]


def graded(*names: str, resume: bool = False, **more: Any) -> list[Graded]:
    """The verdicts on some files or on the class, with a checkpoint, as a command grades them."""
    seen.clear()
    wanted = job()._replace(**more)
    with Checkpoint.of(names or CLASS, wanted, resume) as opened:
        rows = grade_all(files(*names), wanted, checkpoint=opened)
        opened.finish()
    return rows


def checkpoints() -> list[Path]:
    return list((Path(os.environ["TRAINING_PUZZLES_HOME"]) / "runs").glob("*"))


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> str:
    """What is said of a run that was interrupted at its last file, `ann.py`; files are graded one after the other."""

    def one_by_one(
        paths: Iterable[str], job: GradingJob, read: batch.Read, processes: int
    ) -> Generator[Graded, None, None]:
        for path in paths:
            yield job.grade(path, read(path))

    def interrupts() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(batch, "_distribute", one_by_one)
    acts["ann.py"] = interrupts
    with pytest.raises(KeyboardInterrupt) as interrupt:
        graded()
    acts.clear()
    seen.clear()
    return str(interrupt.value)


# --- All files ---


def test_verdicts_are_in_the_order_of_the_files_and_the_largest_is_graded_first() -> None:
    assert [row.path for row in graded()] == list(CLASS)
    assert seen == list(reversed(CLASS))
    assert [row.verdicts[0].message for row in graded()] == ["x\n", "x\nx\n", "x\nx\nx\n"]


def test_a_single_file_has_no_checkpoint_and_no_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(batch, "LocalProcesses")
    assert [row.path for row in grade_all(files("ann.py", "ann.py"), job())] == ["ann.py"]
    assert checkpoints() == []


def test_each_files_verdicts_are_finished_as_they_arrive() -> None:
    def finish(row: Graded) -> Graded:
        assert seen[-1] == row.path
        return Graded(row.path.upper(), row.verdicts)

    assert [row.path for row in grade_all(files("ann.py"), job(), finish=finish)] == ["ANN.PY"]


def test_a_file_that_cannot_be_read_is_graded_with_the_reason() -> None:
    rows = graded("ann.py", "none.py")
    assert "No such file" in rows[1].verdicts[0].message


def test_an_error_of_the_grader_is_a_lost_verdict_on_each_wanted_puzzle(capsys: pytest.CaptureFixture[str]) -> None:
    acts["bo.py"] = lambda: exec("1 / 0")
    rows = graded(slugs=("fake_a", "fake_b"))
    assert [row.is_lost for row in rows] == [False, True, False]
    assert [(v.puzzle, v.status, v.reason) for v in rows[1].verdicts] == [
        ("fake_a", "failed", LOST), ("fake_b", "failed", LOST)]  # fmt: skip
    assert "ZeroDivisionError" in rows[1].verdicts[0].message
    assert "1 of 3 files" in capsys.readouterr().err


def test_a_process_that_breaks_costs_only_the_file_that_broke_it() -> None:
    def breaks() -> None:
        raise BrokenProcessPool

    acts["bo.py"] = breaks
    rows = graded()
    assert [row.is_lost for row in rows] == [False, True, False]


def test_there_are_no_more_files_in_work_than_the_processes_need() -> None:
    names = [f"{number:02}.py" for number in range(20)]
    for name in names:
        Path(name).write_text("x")
    read: list[str] = []
    results = batch._distribute(names, job(), lambda path: read.append(path) or b"", 2)  # type: ignore[func-returns-value]
    next(results)
    assert len(read) == 2 * batch.QUEUED_PER_PROCESS
    results.close()


# --- Interrupted and resumed ---


def test_a_run_that_has_ended_leaves_no_checkpoint() -> None:
    graded()
    assert checkpoints() == []


def test_an_interrupted_run_continues_with_what_is_missing(interrupted: str) -> None:
    assert "2 of 3 files" in interrupted
    rows = graded(resume=True)
    assert (seen, [row.verdicts[0].message.count("x") for row in rows]) == (["ann.py"], [1, 2, 3])
    assert checkpoints() == [], "there is nothing left to resume"


@pytest.mark.usefixtures("interrupted")
def test_without_resume_everything_is_graded_again() -> None:
    graded()
    assert sorted(seen) == list(CLASS)


def test_a_lost_file_is_not_in_the_checkpoint_and_is_graded_again(capsys: pytest.CaptureFixture[str]) -> None:
    acts["bo.py"] = lambda: exec("1 / 0")
    graded()
    assert len(checkpoints()) == 1
    assert "--resume" in capsys.readouterr().err
    acts.clear()
    rows = graded(resume=True)
    assert (seen, any(row.is_lost for row in rows)) == (["bo.py"], False)


@pytest.mark.usefixtures("interrupted")
@pytest.mark.parametrize("change", [{"strict": True}, {"keep": True}, {"slugs": ("fake_b",)}], ids=str)
def test_under_other_conditions_nothing_is_resumed(change: dict[str, Any]) -> None:
    graded(resume=True, **change)
    assert sorted(seen) == list(CLASS)


@pytest.mark.usefixtures("interrupted")
def test_a_file_with_another_content_is_graded_again() -> None:
    Path("cleo.py").write_text("changed")
    graded(resume=True)
    assert sorted(seen) == ["ann.py", "cleo.py"]


def test_a_file_that_changed_while_it_was_graded_is_told_and_graded_again() -> None:
    with checkpoint() as first:
        first.begin("ann.py", b"x")
        first.begin("bo.py", b"x")
        first.add(row(), b"changed")
        first.add(row("bo.py"), b"x")
        assert ["ann.py" in warning for warning in first.warnings] == [True]
    with checkpoint(resume=True) as again:
        assert again.known("ann.py", b"x") is again.known("ann.py", b"changed") is None
        assert again.known("bo.py", b"x") is not None


def test_an_interrupt_ends_processes_that_are_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    pools: list[InlineProcesses] = []

    class Seen(InlineProcesses):
        def __init__(self, processes: int) -> None:
            super().__init__(processes)
            pools.append(self)

    monkeypatch.setattr(batch, "LocalProcesses", Seen)
    results = batch._distribute(CLASS, job(), lambda path: b"", 1)
    next(results)
    results.close()
    list(batch._distribute(CLASS, job(), lambda path: b"", 1))
    assert [pool.is_interrupted for pool in pools] == [True, False]


# --- The checkpoint itself ---


def checkpoint(resume: bool = False, conditions: str = "the job") -> Checkpoint:
    return Checkpoint(Path("runs/c.jsonl"), conditions, resume, len(CLASS))


def row(path: str = "ann.py") -> Graded:
    return Graded(path, (a_verdict(),))


def test_verdicts_are_known_for_the_same_content_and_conditions() -> None:
    with checkpoint() as first:
        first.begin("ann.py", b"x")
        first.add(row(), b"x")
    with checkpoint(resume=True) as again:
        assert again.known("ann.py", b"x") == row()
        assert again.known("ann.py", b"y") is again.known("bo.py", b"x") is None
        assert again.known("ann.py", OSError("x")) is None
    with checkpoint(resume=True, conditions="another job") as other:
        assert other.known("ann.py", b"x") is None


def test_a_file_that_could_not_be_read_is_known_by_its_error() -> None:
    with checkpoint() as first:
        first.add(row(), OSError(2, "none"))
    with checkpoint(resume=True) as again:
        assert again.known("ann.py", OSError(2, "none")) == row()
        assert again.known("ann.py", OSError(3, "none")) is again.known("ann.py", b"OSError(2, 'none')") is None


def test_without_resume_the_checkpoint_begins_empty() -> None:
    with checkpoint() as first:
        first.add(row(), b"x")
    with checkpoint() as second:
        assert second.known("ann.py", b"x") is None
    with checkpoint(resume=True) as third:
        assert third.known("ann.py", b"x") is None


def test_the_last_line_for_a_file_counts() -> None:
    with checkpoint() as first:
        first.add(row(), b"x")
        first.add(Graded("ann.py", (a_verdict(status="failed", stars=0),)), b"y")
    with checkpoint(resume=True) as again:
        assert again.known("ann.py", b"x") is None
        assert again.known("ann.py", b"y") is not None


def test_half_a_line_at_the_end_is_no_warning_and_others_are() -> None:
    with checkpoint() as first:
        first.add(row(), b"x")
    first.path.write_bytes(first.path.read_bytes() + b'\n{"key')
    with checkpoint(resume=True) as again:
        assert (again.warnings, again.known("ann.py", b"x")) == ([], row())
        again.add(row("bo.py"), b"x")
    with checkpoint(resume=True) as third:
        assert len(third.warnings) == 1, "now it is in the middle"
        assert third.known("bo.py", b"x") == row("bo.py")


def test_a_checkpoint_that_cannot_be_written_is_one_warning() -> None:
    Path("runs").write_text("no folder")
    with checkpoint() as broken:
        broken.add(row(), b"x")
        assert len(broken.warnings) == 1


def test_other_files_have_another_checkpoint() -> None:
    paths = set()
    for names in (["ann.py"], ["./ann.py"], ["ann.py", "bo.py"]):
        with Checkpoint.of(names, job(), False) as opened:
            paths.add(opened.path)
    assert len(paths) == 2

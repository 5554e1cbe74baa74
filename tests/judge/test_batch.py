"""A whole class: many files, several processes, one table, and files for other programs."""

import csv
import io
import json
import multiprocessing
import os
import sys
import types
from collections.abc import Iterable
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from puzzles.judge import batch
from puzzles.judge.batch import grade_all
from puzzles.judge.checkpoint import Checkpoint, GradingJob
from puzzles.judge.submission import Content, SourceFile
from puzzles.judge.verdict import Graded
from puzzles.sandbox.client import Protection, can_fork
from puzzles.sandbox.limits import Limits
from tests.support.commands import puzzles, solution
from tests.support.course import over_target
from tests.support.fake_grading import StatedJob, real_verdict, write_verdicts

pytestmark = pytest.mark.usefixtures("in_this_process")

SOLUTIONS = Path(__file__).parents[2] / "solutions"
WRONG = "async def ddp(model):\n    await model.receive()\n"


FILES = {
    "anna.py": solution("basic") + solution("ddp"),
    "ben.py": over_target("basic") + WRONG,
    "=cleo.py": "def basic(model):\n    raise ValueError('<b>\"&\\x1b')\n",
    "dora.py": "import os\ndef basic(model): os._exit(0)\n",
    "emil.py": "",
}


def write_class(folder: Path, names: Iterable[str] = FILES) -> Path:
    folder.mkdir()
    for name in names:
        (folder / name).write_text(FILES[name])
    return folder


@pytest.fixture
def a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return write_class(tmp_path / "class")


@pytest.fixture
def two_students(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As few as are distributed."""
    monkeypatch.chdir(tmp_path)
    return write_class(tmp_path / "class", ["anna.py", "=cleo.py"])


def files(paths: list[str]) -> list[SourceFile]:
    return list(map(SourceFile, paths))


def job(**more: Any) -> GradingJob:
    return GradingJob(("basic",), Limits(seconds=5), **more)


@pytest.mark.sandboxed
def test_a_class_has_one_table_with_stars(a_class: Path):
    result = puzzles("grade", "--trust", "class", code=1)
    rows = {row.split()[0]: row.split()[1:] for row in result.stdout.splitlines() if row.strip().partition(".py")[1]}
    assert rows["anna.py"][0] in ("★★★", "★★☆")
    assert rows["ben.py"] == ["★☆☆", "deadlock", "1"]
    assert rows["dora.py"] == ["crash", "0"]
    assert rows["emil.py"] == ["0"]
    assert "in 5 files: 2" in result.stdout


@pytest.mark.sandboxed
@pytest.mark.slow
def test_every_executor_gives_the_same_results(two_students: Path):
    paths = sorted(map(str, two_students.iterdir()))
    one_by_one = [job().grade(path, Path(path).read_bytes()) for path in paths]
    assert grade_all(files(paths), job()) == one_by_one
    assert grade_all(files(paths), job(), jobs=1) == one_by_one


class Breaking(StatedJob):
    """A job that takes its process with it on one of the files."""

    def grade(self, path: str, source: Content, client: object = None) -> Graded:
        if path.endswith("dora.py"):
            os._exit(1)
        return super().grade(path, source, client)

    grade_with_kept_client = grade


def test_a_process_that_breaks_loses_only_its_own_row(a_class: Path, capsys: pytest.CaptureFixture[str]):
    paths = sorted(map(str, a_class.iterdir()))
    with Checkpoint.of(paths, Breaking(*job()), False) as checkpoint:
        found = grade_all(files(paths), Breaking(*job()), 2, checkpoint)
    assert "1 of 5 files" in (said := capsys.readouterr().err)
    assert "--resume" in said
    with Checkpoint.of(paths, Breaking(*job()), True) as checkpoint:
        kept = [path for path in paths if checkpoint.known(path, Path(path).read_bytes()) is not None]
    assert kept == [path for path in paths if not path.endswith("dora.py")]
    assert [g.path for g in found] == paths
    assert [Path(graded.path).name for graded in found if graded.is_lost] == ["dora.py"]


def test_a_pool_that_breaks_before_the_next_file_is_handed_out_loses_none(
    two_students: Path, monkeypatch: pytest.MonkeyPatch
):
    submit, calls = batch.LocalProcesses.submit, count()

    def breaking(self: batch.LocalProcesses, *given: Any) -> Future[Any]:
        if next(calls) == 1:
            raise BrokenProcessPool
        return submit(self, *given)

    monkeypatch.setattr(batch.LocalProcesses, "submit", breaking)
    paths = sorted(map(str, two_students.iterdir()))
    found = list(batch._distribute(paths, StatedJob(*job()), lambda path: Path(path).read_bytes(), 2))
    assert sorted(graded.path for graded in found) == paths
    assert not any(graded.is_lost for graded in found)


class Blocking(StatedJob):
    """A job that says that it has begun, and then waits for ever on all files but one."""

    def grade(self, path: str, source: Content, client: object = None) -> Graded:
        if not path.endswith("anna.py"):
            os.write(BEGUN[1], b"x")
            while True:  # `signal.pause` would miss the signal that ends it if that came just before
                pass
        return super().grade(path, source, client)

    grade_with_kept_client = grade


BEGUN = os.pipe()


@pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux only")
def test_who_interrupts_does_not_wait_for_what_is_under_way(a_class: Path):
    others = set(multiprocessing.active_children())
    paths = ["class/ben.py", "class/anna.py", "class/dora.py"]
    results = batch._distribute(paths, Blocking(*job()), lambda path: b"", 2)
    assert next(results).path == "class/anna.py"
    assert os.read(BEGUN[0], 1) == b"x"
    results.close()  # as an interrupt does; it would wait for ever
    assert set(multiprocessing.active_children()) <= others


# --- Files for other programs ---


@pytest.mark.usefixtures("stated_verdicts")
def test_csv_has_a_row_for_each_puzzle_and_no_formulas(in_an_empty_folder: Path):
    crash = real_verdict("basic", "failed", stars=0, reason="crash", message="line 2: '<b>\"&'")
    write_verdicts("=cleo.py", crash)
    puzzles("grade", "--trust", "=cleo.py", "-o", "out.csv", "--puzzle", "basic")
    (row,) = csv.DictReader(io.StringIO(Path("out.csv").read_text()))
    assert (row["submission"], row["reason"]) == ("'=cleo.py", "crash")


REFUSED = [
    (["--limit", "memory=lots"], "'lots' is not a size; write a number of bytes, or 64k, 512M, 2G"),
    (["--limit", "memory=0"], "'0' is not a size"),
    (["--limit", "processes=0"], "Invalid value for '--limit'"),
    (["--limit", "disk=1G"], "'disk=1G' is not a limit; the limits are time=10s, memory=1024M, output=16M, files=16M"),
    (["--limit", "time"], "'time' is not a limit; the limits are time=10s"),
    (["-o", "page.pdf"], "to 'page.pdf'; end the name with .html, .csv or .json (Gradescope), or with /"),
    (["-o", ""], "-o cannot tell what to write to ''; end the name with .html"),
    (["-o", "a.csv", "-o", "b.csv"], "-o writes one file of each kind; choose a.csv or b.csv"),
]


@pytest.mark.parametrize(("arguments", "message"), REFUSED, ids=lambda x: " ".join(x) if isinstance(x, list) else "")
def test_wrong_options_say_what_would_be_right(a_class: Path, arguments: list[str], message: str):
    result = puzzles("grade", "class/emil.py", *arguments, code=2)
    assert message in " ".join(result.stderr.split())


def test_the_last_of_two_limits_counts(a_class: Path, monkeypatch: pytest.MonkeyPatch):
    used: list[Limits] = []

    def begin(files: object, job: GradingJob, *_: object) -> None:
        used.append(job.limits)
        raise SystemExit

    monkeypatch.setattr("puzzles.judge.batch.grade_all", begin)
    words = "--limit time=1 --limit time=3s --limit memory=2G --limit output=64k --limit files=1M --limit processes=9"
    puzzles("grade", "class/anna.py", *words.split())
    puzzles("grade", "class/anna.py")
    assert used == [Limits(3, 2 << 30, 64 << 10, 1 << 20, 9), Limits()]


def test_gradescope_without_a_submission_is_refused(in_an_empty_folder: Path):
    assert "no submission" in puzzles("grade", ".", "--trust", "-o", "r.json").stderr


# --- HTML ---


@pytest.mark.slow
@pytest.mark.sandboxed
def test_the_page_holds_all_and_escapes_what_is_not_ours(two_students: Path):
    stored = solution("basic").replace("activations[0] =", "activations['<script>'] = activations[0] =")
    (two_students / "anna.py").write_text("print('<script>alert(1)</script>')\n" + stored)
    puzzles("grade", "--trust", "class", "-o", "page.html")
    page = Path("page.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script" not in page
    assert "&lt;b&gt;" in page
    assert "\x1b" not in page
    assert "raise ValueError" in page
    assert page.count('class="picture"') >= 2
    assert page.count("peak memory against timesteps") >= 2
    assert "In practice: " in page
    assert "http:" not in page.replace("http://www.w3.org", "")


@pytest.mark.slow
def test_a_page_of_too_many_files_says_that_pictures_are_left_out(two_students: Path, monkeypatch: pytest.MonkeyPatch):
    words = "There are too many files here for their pictures; grade one by itself to see them."
    puzzles("grade", "--trust", "class", "-o", "page.html")
    assert words not in Path("page.html").read_text()
    monkeypatch.setattr("puzzles.cli.grade.MAX_PICTURES", 1)
    puzzles("grade", "--trust", "class", "-o", "page.html")
    assert words in Path("page.html").read_text()


def test_a_page_without_drawing_has_no_pictures_and_all_the_rest(a_class: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "drawing", None)
    puzzles("grade", "class/anna.py", "-o", "page.html")
    page = Path("page.html").read_text()
    assert '<div class="picture">' not in page
    assert "16.5 timesteps (target" in page


# --- Trust ---


@pytest.fixture
def unprotected(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a system where nothing protects files, with an ordinary user."""
    bare = lambda: Protection(landlock=0, seccomp=False, other_user=False)  # noqa: E731
    for module in ("puzzles.cli.grade", "puzzles.screens.terminal"):
        monkeypatch.setattr(f"{module}.protection", bare)


@pytest.mark.sandboxed
@pytest.mark.slow
@pytest.mark.usefixtures("unprotected")
def test_where_nothing_protects_files_a_folder_of_others_asks_for_trust(two_students: Path):
    refused = puzzles("grade", "class", code=2)
    words = " ".join(refused.stderr.split())
    assert all(part in words for part in ("code in class", "every file that you can", "--trust", "doctor"))
    trusted = puzzles("grade", "class", "--trust", code=1)
    assert "read and change" in " ".join(trusted.stdout.split())
    puzzles("grade", "class/anna.py", code=0)


@pytest.mark.slow
@pytest.mark.usefixtures("unprotected")
def test_where_nothing_protects_files_our_own_solutions_need_no_trust():
    puzzles("grade", str(SOLUTIONS), "--puzzle", "basic", code=0)


@pytest.mark.slow
@pytest.mark.usefixtures("unprotected")
def test_nobody_is_asked_to_trust_what_they_own_and_work_on(two_students: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir("class")
    ask = ("--puzzle", "basic")
    puzzles("grade", ".", *ask, code=1)
    assert puzzles("grade", "..", *ask).exit_code == 2, "not the current folder"
    monkeypatch.setattr(os, "getuid", lambda: os.stat("anna.py").st_uid + 1)
    assert puzzles("grade", ".", *ask).exit_code == 2, "somebody else's files"


@pytest.mark.slow
@pytest.mark.sandboxed
@pytest.mark.parametrize("means", [{"landlock": 1}, {"other_user": True}])
def test_what_protects_files_needs_no_trust_and_says_what_it_leaves_open(
    two_students: Path, means: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    here = lambda: Protection(**{"landlock": 0, "seccomp": False, "other_user": False} | means)  # noqa: E731
    monkeypatch.setattr("puzzles.cli.grade.protection", here)
    monkeypatch.setattr("puzzles.screens.terminal.protection", here)
    graded = puzzles("grade", "class", "--puzzle", "ddp", code=0)
    words = " ".join(graded.stdout.split())
    assert "use the network" in words


def test_doctor_says_what_macos_lacks(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("puzzles.cli.grade.sys", types.SimpleNamespace(platform="darwin"))
    assert "not memory or processes" in puzzles("doctor").stdout


# --- Systems that cannot fork ---


@pytest.fixture
def without_fork(a_class: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As on Windows, as far as that can be simulated: no fork. Killing a tree of processes is not."""
    monkeypatch.delattr("puzzles.sandbox.client.os.fork")
    return a_class


@pytest.mark.sandboxed
@pytest.mark.slow
def test_without_fork_a_process_is_started_for_each_run(without_fork: Path):
    assert not can_fork()
    text = solution("basic") + solution("ddp")
    text += (SOLUTIONS / "engine" / "fsdp.py").read_text() + (SOLUTIONS / "layout" / "ffn.py").read_text()
    (without_fork / "anna.py").write_text(text)
    result = puzzles("grade", "--json", "class/anna.py")
    found = {one["puzzle"]: one["status"] for one in json.loads(result.stdout)["files"][0]["results"]}
    assert {slug for slug, status in found.items() if status == "passed"} == {"basic", "ddp", "FSDP", "ffn"}
    assert "'puzzles doctor'" in puzzles("grade", "class/anna.py", "--puzzle", "basic").stdout


@pytest.mark.sandboxed
@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("body", "reason", "words"),
    [
        ("while True: pass", "timeout", "time was up after 1 s"),
        ("while True: print('x' * 9999)", "crash", "it printed more than 65,536 bytes"),
        pytest.param("import os; os._exit(3)", "crash", "the process exited with code 3", marks=pytest.mark.slow),
        pytest.param("1 / 0", "crash", "line 2: rank 0, t=0: ZeroDivisionError", marks=pytest.mark.slow),
        (f"open({str(SOLUTIONS / 'basic.py')!r})", "crash", "is not for submissions"),
    ],
)
def test_without_fork_harm_has_its_verdict_too(without_fork: Path, body: str, reason: str, words: str):
    (without_fork / "dora.py").write_text(f"def basic(model):\n    {body}\n")
    limits = ("--limit", "time=1", "--limit", "output=64k")
    told = json.loads(puzzles("grade", "--json", "class/dora.py", "--puzzle", "basic", *limits).stdout)
    (verdict,) = told["files"][0]["results"]
    assert (verdict["reason"], words in verdict["message"]) == (reason, True), verdict


@pytest.mark.slow
@pytest.mark.sandboxed
def test_without_fork_a_source_that_breaks_python_is_reported(without_fork: Path):
    (without_fork / "dora.py").write_text("def basic(model): return " + "-" * 200_000 + "1")
    (verdict,) = grade_all(files(["class/dora.py"]), job())[0].verdicts
    assert (verdict.status, verdict.reason) == ("failed", "syntax")


def test_without_fork_doctor_says_what_is_missing(without_fork: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delattr("puzzles.cli.grade.os.getuid")
    shown = puzzles("doctor").stdout
    assert "not memory" in shown
    assert "read and change" in shown
    assert "--trust" in shown


@pytest.mark.parametrize(("width", "told"), [(100, "Data Parallel"), (80, "Parallel"), (40, "classics")])
def test_the_table_of_a_class_keeps_its_columns_whole_or_shows_chapters(width: int, told: str) -> None:
    from rich.console import Console

    from puzzles.judge.verdict import Verdict
    from puzzles.screens.standings import standings

    slugs = ("basic", "ddp", "fsdp", "gpipe", "DataParallel", "FSDP", "matmul", "ffn")
    verdicts = tuple(Verdict(slug, "", "failed", {}, "rule") for slug in slugs)
    screen = Console(width=width, file=io.StringIO())
    screen.print(standings(screen, [Graded(f"class/{name}.py", verdicts) for name in ("anna", "ben")]))
    page = screen.file.getvalue()  # type: ignore[attr-defined]
    assert told in page
    assert "stars" in page
    assert "…" not in page

"""Links, pipes, devices and odd names in a class's folder: none is opened or followed, and each keeps its row."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from puzzles.judge.submission import SourceFile, submissions
from tests.support.commands import puzzles
from tests.support.fake_grading import real_verdict, stating

pytestmark = pytest.mark.skipif(os.name != "posix", reason="links and pipes as POSIX has them")

SOLVED = stating(real_verdict("basic"))
SECRET = "the points of everybody = 7\n"
ODD = os.fsdecode(b"caf\xe9.py")


@pytest.fixture
def a_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ann, who solved it, and entries that are no files of their own."""
    monkeypatch.chdir(tmp_path)
    Path("teacher.py").write_text(SECRET)
    folder = Path("class")
    (folder / "ann").mkdir(parents=True)
    (folder / "ann" / "solution.py").write_text(SOLVED)
    (folder / "copy.py").symlink_to("ann/solution.py")
    (folder / "quote.py").symlink_to(tmp_path / "teacher.py")
    (folder / "itself.py").symlink_to("itself.py")
    (folder / "gone.py").symlink_to("nowhere.py")
    (folder / "zero.py").symlink_to("/dev/zero")
    (folder / "ben").symlink_to("ann")
    os.mkfifo(folder / "pipe.py")
    (folder / ODD).write_text(SOLVED)
    return folder


def found(*paths: str) -> dict[str, SourceFile]:
    return {os.path.basename(file.path): file for file in submissions(paths)}


def reason(file: SourceFile) -> str:
    try:
        return f"it was read: {file.read()!r}"
    except OSError as why:
        return str(why)


LINKS = ("copy.py", "quote.py", "itself.py", "gone.py", "zero.py", "ben")


@pytest.mark.usefixtures("stated_verdicts")
def test_every_entry_keeps_a_row_that_says_why_and_none_passes_with_the_work_of_another(a_class: Path) -> None:
    """A relative and an absolute path at once: as written, they have no folder in common."""
    (a_class.parent / "more").mkdir()
    (a_class.parent / "more" / "eve.py").write_text("")
    outputs = ("-o", "page.html", "-o", "t.csv")
    result = puzzles("grade", "class", os.path.abspath("more"), "--puzzle", "basic", *outputs)
    assert result.exit_code == 0, result.output
    for name in LINKS:
        assert f"{name}: " in " ".join(result.stdout.split())
    assert "pipe.py:" in " ".join(result.stdout.split())
    assert "10 files: 2" in result.stdout
    for page in (result.stdout, *(Path(name).read_text() for name in ("page.html", "t.csv"))):
        assert "\\udce9.py" in page
        assert "the points" not in page


@pytest.mark.usefixtures("stated_verdicts")
def test_a_file_with_two_names_is_graded_for_each_and_reported(a_class: Path) -> None:
    os.link("class/ann/solution.py", "class/eve.py")
    os.link("teacher.py", "class/alone.py")
    result = puzzles("grade", "class", "--puzzle", "basic", "-o", "t.csv")
    assert result.exit_code == 0, result.output
    (warning,) = (line for line in result.stderr.splitlines() if "hard links" in line)
    assert "class/ann/solution.py" in warning
    assert "class/eve.py" in warning
    assert "alone" not in warning
    assert Path("t.csv").read_text().count(",passed,") == 3


def test_a_link_that_is_named_alone_is_followed_and_a_pipe_is_not_opened(a_class: Path) -> None:
    assert found("class/copy.py")["copy.py"].read() == SOLVED.encode()
    assert "never opened" in reason(found("class/pipe.py")["pipe.py"])
    assert "never opened" in reason(SourceFile("/dev/zero"))
    with socket.socket(socket.AF_UNIX) as here:
        here.bind("socket.py")
        assert "never opened" in reason(found("socket.py")["socket.py"])


def test_verify_opens_no_pipe_either(a_class: Path) -> None:
    result = puzzles("verify", "class/pipe.py", "--puzzle", "basic")
    assert (result.exit_code, "never opened" in " ".join(result.stderr.split())) == (2, True)


def test_what_is_exchanged_for_a_link_after_it_was_found_is_refused(a_class: Path) -> None:
    (solution,) = submissions(["class/ann"])
    (a_class / "ann" / "solution.py").unlink()
    (a_class / "ann" / "solution.py").symlink_to("../../teacher.py")
    assert "it is a link" in reason(solution)
    in_ann = next(file for file in submissions(["class"]) if "ann" in file.path)
    (a_class / "ann").rename("elsewhere")
    (a_class / "ann").symlink_to("../elsewhere")
    assert "it is a link" in reason(in_ann)


def test_a_link_that_appears_between_looking_and_opening_is_refused(
    a_class: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses it then: what was looked at was a file."""
    look, seen = os.stat, os.stat("teacher.py")
    monkeypatch.setattr(os, "stat", lambda path, **how: seen if path == "quote.py" else look(path, **how))
    assert "symbolic links" in reason(SourceFile("class/quote.py", "class"))


@pytest.fixture
def ordinary_user() -> Iterator[None]:
    """Not root, for whom no file is unreadable."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    yield
    os.seteuid(user)


def test_what_may_not_be_read_is_reported(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    for parent in (tmp_path, *tmp_path.parents):
        if parent.is_relative_to(Path(gettempdir()).resolve()) and parent != Path(gettempdir()).resolve():
            parent.chmod(parent.stat().st_mode | 0o755)
    closed, secret = tmp_path / "closed", tmp_path / "secret.py"
    closed.mkdir()
    (closed / "ann.py").write_text(SOLVED)
    secret.write_text(SOLVED)
    closed.chmod(0)
    secret.chmod(0)
    request.getfixturevalue("ordinary_user")
    entries = {os.path.basename(file.path): file for file in submissions([str(tmp_path)])}
    assert "Permission denied" in reason(entries["closed"])
    assert "Permission denied" in reason(entries["secret.py"])


@pytest.mark.skipif(sys.platform != "linux" or os.geteuid() != 0, reason="makes a device")
def test_a_device_is_not_opened(tmp_path: Path) -> None:
    try:
        os.mknod(tmp_path / "zero.py", 0o020666, os.makedev(1, 5))
    except OSError as why:
        pytest.skip(f"no devices here: {why}")
    assert "never opened" in reason(submissions([str(tmp_path)])[0])

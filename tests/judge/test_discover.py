"""Finding submissions: which files count, which are refused, and that nobody is missing; no odd entry is opened."""

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import gettempdir

import pytest

from puzzles.judge.submission import MAX_DEPTH, SAYS, SourceFile, entries, found_in, hard_links, submissions
from tests.support.commands import puzzles
from tests.support.fake_grading import real_verdict, stating

pytestmark = pytest.mark.usefixtures("in_an_empty_folder")

# --- Each rule of finding submissions: which files count, which are refused, and that nobody is missing ---


def write(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text("")


def refused(*paths: str) -> dict[str, str]:
    """By path: why each submission is refused; empty if it is not."""
    return {file.path: file.refused for file in submissions(paths)}


def test_a_folder_has_its_python_files_and_notebooks_in_order() -> None:
    write("c/b.py", "c/a.ipynb", "c/deep/er/z.py", "c/readme.md", "c/data.csv", "c/x.pyc", "c/PY")
    assert [(file.path, file.folder) for file in submissions(["c"])] == [
        (name, "c") for name in ("c/a.ipynb", "c/b.py", "c/deep/er/z.py")
    ]


@pytest.mark.parametrize(
    "name", [".hidden.py", "_private.py", "__init__.py", ".git/a.py", "__pycache__/a.py", "venv/lib/a.py"]
)
def test_hidden_names_and_virtual_environments_are_left_out(name: str) -> None:
    write("c/ok.py", f"c/{name}", "c/venv/pyvenv.cfg")
    assert list(refused("c")) == ["c/ok.py"]


def test_a_folder_may_begin_with_one_underscore() -> None:
    write("c/_week1/a.py")
    assert list(refused("c")) == ["c/_week1/a.py"]


def test_a_file_that_is_named_counts_whatever_its_name() -> None:
    write("_odd.txt")
    assert submissions(["_odd.txt"]) == [SourceFile("_odd.txt")]
    assert submissions(["missing.py"]) == [SourceFile("missing.py")], "who reads it says that it is missing"


def test_each_file_counts_once_at_the_first_path() -> None:
    write("c/a.py", "c/b.py")
    found = found_in(["c/b.py", "c", os.path.abspath("c/a.py")])
    assert {path: [file.path for file in files] for path, files in found.items()} == {
        "c/b.py": ["c/b.py"], "c": ["c/a.py"], os.path.abspath("c/a.py"): []}  # fmt: skip


def test_links_below_a_folder_are_refused_and_listed() -> None:
    write("elsewhere/secret.py", "c/a.py")
    os.symlink("../elsewhere", "c/folder")
    os.symlink("a.py", "c/same.py")
    assert refused("c") == {"c/a.py": "", "c/folder": SAYS("link"), "c/same.py": ""}
    (same,) = (file for file in submissions(["c"]) if file.path == "c/same.py")
    with pytest.raises(OSError, match="link"):
        same.read()


def test_a_single_path_may_be_a_link_and_several_may_not() -> None:
    write("elsewhere/a.py", "c/ann/a.py")
    os.symlink("../elsewhere", "c/bo")
    assert refused("c/bo") == {"c/bo/a.py": ""}
    assert refused("c/ann", "c/bo") == {"c/ann/a.py": "", "c/bo": SAYS("link")}
    assert refused("c/ann", "c/bo/a.py") == {"c/ann/a.py": "", "c/bo/a.py": SAYS("link")}


def test_folders_below_the_deepest_level_are_refused_and_listed() -> None:
    deepest = "/".join(["c", *["d"] * MAX_DEPTH])
    write(f"{deepest}/a.py", f"{deepest}/e/b.py")
    found = refused("c")
    assert list(found) == [f"{deepest}/a.py", f"{deepest}/e"]
    assert (found[f"{deepest}/a.py"], bool(found[f"{deepest}/e"])) == ("", True)


def test_entries_of_a_folder_are_submissions_and_folders() -> None:
    write("c/b.py", "c/_b.py", "c/.b.py", "c/notes.txt", "c/.notes", "c/ann/a.py", "c/.git/a.py")
    assert entries("c") == ["ann", "b.py"]
    assert entries("none") == []


def test_a_file_under_several_names_is_told() -> None:
    write("c/a.py", "c/z.py")
    os.link("c/a.py", "c/b.py")
    assert hard_links(submissions(["c"])) == [["c/a.py", "c/b.py"]]
    assert hard_links([SourceFile("c/a.py"), SourceFile("c/z.py"), SourceFile("none")]) == [], "the other is elsewhere"


# --- Links, pipes, devices and odd names in a class's folder: none is opened or followed, and each keeps its row ---


SOLVED = stating(real_verdict("basic"))
SECRET = "the points of everybody = 7\n"
ODD = os.fsdecode(b"caf\xe9.py")


@pytest.fixture
def a_class(tmp_path: Path) -> Path:
    """Ann, who solved it, and entries that are no files of their own: links and pipes as POSIX has them."""
    if os.name != "posix":
        pytest.skip("links and pipes as POSIX has them")
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
    result = puzzles("grade", "class", os.path.abspath("more"), "--puzzle", "basic", *outputs, code=0)
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
    result = puzzles("grade", "class", "--puzzle", "basic", "-o", "t.csv", code=0)
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


@pytest.mark.skipif(os.name != "posix", reason="modes as POSIX has them")
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

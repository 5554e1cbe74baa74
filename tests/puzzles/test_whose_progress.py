"""`puzzles grade` adds to a player's stars for the player's own files only, whatever it shows or writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from puzzles.commands.main import main
from puzzles.commands.shared.watch_state import WatchState
from puzzles.grading import progress
from puzzles.sandbox.limits import Limits
from puzzles.tracks import ALL
from tests.support.fake_grading import real_verdict, stating

pytestmark = pytest.mark.usefixtures("stated_verdicts")

BASIC = stating(real_verdict("basic"))

FORMS = {
    "text": (),
    **{name: (name,) for name in ("--json", "--why", "--strict")},
    **{name: ("-o", f"out.{name}") for name in ("html", "csv", "json")},
    **{name: (f"--{name}", f"out.{name}") for name in ("gradebook", "traces")},
    "pages": ("-o", "pages"),
}
"""What `puzzles grade` can show or write."""


def puzzles(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def started(path: str) -> str:
    """A file that the player has started and finished."""
    Path(path).parent.mkdir(exist_ok=True)
    puzzles("start", "basic", "-o", path)
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


@pytest.fixture(autouse=True)
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["ann.py", "class/ann.py", "copy.py"])
def test_a_file_of_somebody_else_changes_no_progress(name: str, form: str) -> None:
    started("mine.py")  # which the copy has the text of
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(BASIC)
    before = puzzles("status")
    puzzles("grade", name, "--puzzle", "basic", *FORMS[form])
    assert puzzles("status") == before
    assert progress.load() == {slug: progress.PuzzleProgress() for slug in ALL}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("whose", OWN)
def test_an_own_file_counts_whatever_is_shown(whose: str, form: str) -> None:
    page = puzzles("grade", OWN[whose](), "--puzzle", "basic", *FORMS[form])
    assert (progress.load()["basic"].attempts, progress.load()["basic"].stars) == (1, 2)
    assert "makes it count" not in page


def test_a_class_does_not_count_even_with_an_own_file_in_it() -> None:
    started("class/mine.py")
    Path("class/ann.py").write_text(BASIC)
    puzzles("grade", "class", "--trust", "--puzzle", "basic")
    assert progress.load()["basic"].attempts == 0


def test_what_makes_a_file_count_is_told_where_a_player_may_wonder() -> None:
    told = "'puzzles status' does not count this file as yours. 'puzzles watch ann.py' makes it count."
    Path("ann.py").write_text(BASIC)
    assert told in puzzles("grade", "ann.py")
    assert told not in puzzles("grade", "ann.py", "-o", "a.csv"), "this is a teacher's"
    Path("ann.py").write_text("")
    assert told not in puzzles("grade", "ann.py", code=1), "nothing is attempted"


@pytest.mark.slow
def test_notebooks_count_unless_they_are_solved() -> None:
    puzzles("notebook", "books")
    puzzles("notebook", "solved", "--solved")
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

"""`puzzles grade` adds to a player's stars for the player's own files only, whatever it shows or writes."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from puzzles.cli.watch import WatchState
from puzzles.judge import progress
from puzzles.sandbox.limits import Limits
from puzzles.tracks import ALL
from tests.support.commands import said
from tests.support.fake_grading import real_verdict, stating

COLUMNS = 200
pytestmark = pytest.mark.usefixtures("in_an_empty_folder", "stated_verdicts")


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

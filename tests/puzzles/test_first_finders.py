"""A leaderboard says who was first and when; names that look alike are one player's, with one row for each point."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from puzzles.commands.main import main
from puzzles.grading.grader import grade_file
from puzzles.leaderboard.board import LOOK_ALIKES, files_of, players, rankings
from puzzles.leaderboard.entry import Entry, EntryError, dates_of, judged
from puzzles.tracks import find

ROOT = Path(__file__).parents[2]


def puzzles(*words: object) -> Result:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    return result


@pytest.fixture(scope="module")
def entry() -> Entry:
    (verdict,) = grade_file(str(ROOT / "solutions" / "ddp.py"), [find("ddp")], keep=True).verdicts
    return judged(find("ddp"), "Ann", verdict.trace.encode())


@pytest.mark.parametrize(
    ("one", "other"),
    [("Ann", "\u0410nn"), ("Ian", "lan"), ("Ian", "ian"), ("Bob", "B0b"), ("Ann", "A\u200bnn"), ("Ann Lee", "Ann  Lee"),
     ("Ann", "\uff21\uff4e\uff4e"), ("Zoë", "Zoe\u0308"), ("paypal", "\u0440\u0430\u0443\u0440\u0430l")],
)  # fmt: skip
def test_names_that_look_alike_are_one(one: str, other: str) -> None:
    found = players([one, other, "Somebody"])
    assert found[one] == found[other] != found["Somebody"]


def test_names_that_differ_stay_apart() -> None:
    names = ["Ann", "Anne", "Zoe", "Zoë", "Ben", "\u0411\u0435\u043d", "\u674e", "\u5c0f"]
    assert len(set(players(names).values())) == len(names)
    assert players(names) == players(reversed(names))
    every = [other for others in LOOK_ALIKES.values() for other in others]
    assert len(every) == len(set(every)), "each look-alike stands for one letter"


def test_a_chain_of_look_alikes_is_one_player() -> None:
    assert len(set(players(["lan", "Ian", "ian"]).values())) == 1, "in any order"


def test_the_first_finder_is_named_first_and_has_one_row(entry: Entry) -> None:
    found = [replace(entry, name="Ann", found="2026-11-03"), replace(entry, name="Ben", found="2026-11-02"),
             replace(entry, name="\u0412\u0435n", found="2026-11-01"), replace(entry, name="Aaron")]  # fmt: skip
    for order in (found, found[::-1]):
        (ranking,) = rankings(order)
        (place,) = ranking.front
        assert [(one.name, one.found) for one in place.entries] == [
            ("\u0412\u0435n", "2026-11-01"), ("Ann", "2026-11-03"), ("Aaron", "")
        ]  # fmt: skip
    page = files_of(rankings(found), "Board")["index.html"]
    assert "<th>first on" in page
    assert "<td>2026-11-01" in page
    assert "first on" not in files_of(rankings([entry]), "Board")["index.html"]


def git(folder: Path, *words: str, day: str = "2026-11-05") -> None:
    when = f"{day}T23:30:00+00:00"
    env = {**os.environ, "GIT_COMMITTER_DATE": when, "GIT_AUTHOR_DATE": when, "HOME": str(folder), "TZ": "Asia/Tokyo"}
    who = ("-c", "user.name=A", "-c", "user.email=a@x.example", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *who, *words], check=True, capture_output=True, env=env)


def test_git_knows_when_each_entry_was_added(tmp_path: Path, entry: Entry) -> None:
    entries = tmp_path / "entries"
    (entries / "ddp").mkdir(parents=True)
    git(tmp_path, "init")
    for name, day in (("zoë", "2026-11-01"), ("ann", "2026-11-04")):
        (entries / "ddp" / f"{name}.json").write_text(replace(entry, name=name).text())
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-m", name, day=day)
    (entries / "ddp" / "zoë.json").write_text(replace(entry, name="zoë").text() + "\n")
    git(tmp_path, "commit", "-am", "a change", day="2026-11-09")
    (entries / "ddp" / "new.json").write_text(replace(entry, name="new").text())
    assert dates_of(entries, "git") == {"ddp/zoë.json": "2026-11-01", "ddp/ann.json": "2026-11-04"}
    board = puzzles("leaderboard", entries, "-o", tmp_path / "board", "--dates", "git")
    assert board.exit_code == 0, board.output
    page = (tmp_path / "board" / "index.html").read_text()
    assert page.index("zoë") < page.index("ann") < page.index("new")
    assert '"found": "2026-11-04"' in (tmp_path / "board" / "board.json").read_text()


def test_a_table_may_say_it(tmp_path: Path, entry: Entry) -> None:
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "a.json").write_text(entry.text())
    (tmp_path / "d.csv").write_text("file,date\na.json,2026-10-01T12:00:00Z\n")
    puzzles("leaderboard", tmp_path / "e", "-o", tmp_path / "board", "--dates", tmp_path / "d.csv")
    assert "2026-10-01" in (tmp_path / "board" / "index.html").read_text()


def test_dates_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    (tmp_path / "d.csv").write_text("file,date\na.json,soon\n")
    with pytest.raises(EntryError, match=r"line 2: it needs a 'file' and a 'date' such as 2026-11-20"):
        dates_of(tmp_path, str(tmp_path / "d.csv"))
    with pytest.raises(EntryError, match=r"none.csv: No such file"):
        dates_of(tmp_path, str(tmp_path / "none.csv"))
    refused = puzzles("leaderboard", tmp_path, "-o", tmp_path / "board", "--dates", "git")
    assert refused.exit_code == 2
    assert "git has no history of" in " ".join(refused.stderr.split())


def test_a_shallow_clone_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    git(tmp_path / "a", "init")
    for name in "xy":
        (tmp_path / "a" / name).write_text(name)
        git(tmp_path / "a", "add", "-A")
        git(tmp_path / "a", "commit", "-m", name)
    git(tmp_path, "clone", "--depth", "1", (tmp_path / "a").as_uri(), "b")
    with pytest.raises(EntryError, match="only part of the history; 'git fetch --unshallow' gets the rest"):
        dates_of(tmp_path / "b", "git")

"""Students and teams of one name: each keeps their own files, grade, page and lateness, in every state and resumed."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from puzzles.judge import batch
from puzzles.judge.checkpoint import GradingJob
from puzzles.judge.verdict import Graded
from puzzles.teaching.class_pages import PageNames
from puzzles.teaching.handed_in import handed_in
from puzzles.teaching.roster import call, read_roster
from tests.support import course
from tests.support.commands import puzzles

RIGHT, WRONG = course.stated(basic="passed"), course.stated(basic="failed")
STATES: dict[str, tuple[tuple[str, ...], float]] = {
    "passed": ((RIGHT,), 1.0),
    "failed": ((WRONG,), 0.0),
    "nothing": ((), 0.0),
    "right, wrong": ((RIGHT, WRONG), 1.0),
    "wrong, right": ((WRONG, RIGHT), 1.0),
    "wrong, wrong": ((WRONG, WRONG + "# again\n"), 0.0),
    "late": ((RIGHT,), 0.9),
    "late, twice": ((WRONG, RIGHT), 0.9),
}
"""The files that are handed in one by one, and the points."""

UNITS = [(state, number) for state in STATES for number in (1, 2)]


def write_class(folder: Path, are_teams: bool) -> Path:
    """All students are called Ann Lee, or all teams Team 1; of each state there are two."""
    here = folder / "class"
    here.mkdir()
    rows = [("name", "id", "login", "section", "group")]
    for unit, (state, _) in enumerate(UNITS):
        people = [f"a{unit}", f"b{unit}"]
        if are_teams:
            rows += [(f"Member {who}", who, "", f"S{unit}", "Team 1") for who in people]
        else:
            rows += [("Ann Lee", *people, "", "")]
        for who, source in zip(people, STATES[state][0]):
            file = here / f"{who}.py"
            file.write_text(source)
            os.utime(file, (course.DUE + (5 if "late" in state else -5),) * 2)
    with (folder / "roster.csv").open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return folder


def grade(folder: Path, *words: object) -> Result:
    course.rules(
        folder,
        "submissions = 'class'\nroster = 'roster.csv'\npages = 'out'\ngradebook = 'book.csv'\n"
        "[late]\ndue = 2026-11-20T18:00:00Z\n",
    )
    return puzzles("class", folder, "--trust", "--puzzle", "basic", "--json", *words)


def check(folder: Path, result: Result, are_teams: bool) -> None:
    rows = json.loads(result.stdout)["files"]
    assert len({row["path"] for row in rows}) == len(rows) == len(UNITS)
    book = {row["ID"]: row for row in csv.DictReader(io.StringIO((folder / "book.csv").read_text()))}
    assert len(book) == len(UNITS) * (1 + are_teams)
    titles = [f"Team 1 (S{unit})" if are_teams else f"Ann Lee (a{unit})" for unit in range(len(UNITS))]
    pages = {re.findall("<h1>(.*)</h1>", text)[0]: text for file in (folder / "out" / "students").iterdir()
             if (text := file.read_text())}  # fmt: skip
    assert sorted(pages) == sorted(titles)
    for unit, (row, title, (state, _)) in enumerate(zip(rows, titles, UNITS)):
        (_, points), people = STATES[state], [f"a{unit}", *([f"b{unit}"] if are_teams else [])]
        assert [one["id"] for one in row["students"]] == people
        assert row["points"] == points, state
        for who in people:
            assert float(book[who]["basic"]) == points, state
        assert row["days_late"] == int("late" in state)
        assert ('class="passed"' in pages[title]) == (points > 0)


@pytest.mark.usefixtures("stated_verdicts")
@pytest.mark.parametrize("are_teams", [False, True], ids=["students", "teams"])
def test_in_every_state_each_keeps_their_own_grade_and_page(tmp_path: Path, are_teams: bool) -> None:
    write_class(tmp_path, are_teams)
    check(tmp_path, grade(tmp_path), are_teams)


@pytest.mark.usefixtures("stated_verdicts")
@pytest.mark.parametrize("are_teams", [False, True], ids=["students", "teams"])
def test_a_run_that_is_resumed_gives_each_the_same(
    tmp_path: Path, are_teams: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_class(tmp_path, are_teams)
    graded: list[str] = []

    def first_seven(paths: list[str], job: GradingJob, read: batch.Read, _: int) -> Iterator[Graded]:
        for path in paths:
            if len(graded) == 7:
                raise KeyboardInterrupt
            graded.append(path)
            content = read(path)
            yield job.grade(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(batch, "_distribute", first_seven)
        assert grade(tmp_path).exit_code not in (0, 2)
    resumed: list[str] = []

    def noted(paths: list[str], *more: Any) -> Any:
        resumed.extend(paths)
        return distribute(paths, *more)

    distribute = batch._distribute
    monkeypatch.setattr(batch, "_distribute", noted)
    check(tmp_path, grade(tmp_path, "--resume"), are_teams)
    assert len(graded) == 7
    assert sorted([*graded, *resumed]) == sorted(map(str, (tmp_path / "class").iterdir()))


def roll(folder: Path, roster: str, *files: str) -> Any:
    (folder / "class").mkdir()
    for name in files:
        (folder / "class" / name).write_text("")
    (folder / "roster.csv").write_text(roster)
    return call(handed_in([str(folder / "class")]), read_roster(folder / "roster.csv"))


def test_what_may_be_of_several_of_one_name_is_of_none_and_all_of_them_are_named(tmp_path: Path) -> None:
    submitted, warnings = roll(tmp_path, "name,id,section,group\nAnn Lee,u1,A,\nAnn Lee,u2,A,\nBen,u3,A,Team 1\n"
                               "Cleo,u4,B,Team 1\n", "Ann Lee.py", "team1.py")  # fmt: skip
    assert [one.is_missing for one in submitted] == [True] * 4 + [False] * 2
    assert [all(words in warning for words in named) for warning, named in zip(
        warnings, [("Ann Lee (u1)", "Ann Lee (u2)"), ("Team 1 (A)", "Team 1 (B)")]
    )] == [True, True]  # fmt: skip


def test_a_warning_on_one_submission_hides_none_on_another(tmp_path: Path) -> None:
    _, warnings = roll(tmp_path, "name,id\nAnn Lee,u1\n", "Ann Lee.py", "Lee, Ann.py", "Ann.py")
    assert len(warnings) == 2, "the name Ann.py is a part of others"


def test_students_without_names_are_told_apart_by_their_ids(tmp_path: Path) -> None:
    submitted, _ = roll(tmp_path, "name,id,login\n,u1,x1\n,u2,x2\n", "u1.py", "x1.py", "u2.py", "x2.py")
    assert [(Path(one.path).name, one.key, len(one.files)) for one in submitted] == [("u1", "u1", 2), ("u2", "u2", 2)]


def test_students_whom_nothing_tells_apart_are_two(tmp_path: Path) -> None:
    submitted, _ = roll(tmp_path, "name\nAnn Lee\nAnn Lee\n")
    assert len({one.path for one in submitted}) == 2


def test_equal_labels_have_pages_of_their_own(tmp_path: Path) -> None:
    names = PageNames(tmp_path, ["a", "b", "a", "a"])
    assert len({names.page(unit) for unit in range(4)}) == 4
    assert PageNames(tmp_path, ["b", "a"])._salt != names._salt, "nothing was written"

"""Whose a submission is: what folders, platforms and rosters say, and that equal names are two people."""

import csv
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
from puzzles.judge.handed_in import handed_in
from puzzles.judge.verdict import Graded
from puzzles.teaching.class_pages import PageNames
from puzzles.teaching.course_file import read_course
from puzzles.teaching.roster import CourseError, Roll, call, name_forms, read_roster
from tests.support import course
from tests.support.commands import csv_rows, puzzles

# --- What is one submission: a student's folder or file, as folders, platforms and rosters say; never two students' ---


def tree(folder: Path, *paths: str) -> Path:
    for path in paths:
        file = folder / path
        if path.endswith("/"):
            file.mkdir(parents=True)
        else:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text("")
    return folder


def roll_of(folder: Path, roster: str) -> Roll:
    file = folder.parent / "roster.csv"
    file.write_text(roster)
    return call(handed_in([str(folder)]), read_roster(file))


def test_a_folder_directly_below_is_one_submission_and_so_is_a_file(tmp_path: Path) -> None:
    here = tree(tmp_path, "ann/a.py", "ann/deep/er/b.ipynb", "ann/.hidden.py", "ben.py", "cleo/report.pdf", "dan/")
    tree(here, ".git/x.py", "__MACOSX/ann/a.py", "venv/pyvenv.cfg", "venv/lib.py", "notes.txt", "_private.py")
    found = handed_in([str(here)])
    assert {one.key: [str(Path(file.path).relative_to(here)) for file in one.files] for one in found} == {
        "ann": ["ann/a.py", "ann/deep/er/b.ipynb"], "ben.py": ["ben.py"], "cleo": [], "dan": []
    }  # fmt: skip
    assert [Path(one.path).name for one in found] == ["ann", "ben.py", "cleo", "dan"]
    assert len(handed_in([str(here)], each_file=True)) == 3
    assert [one.path for one in handed_in([str(here / "ben.py")])] == [str(here / "ben.py")]
    assert len(handed_in([str(here), str(here / "ann")])) == 4, "what lies below two paths is graded once"


def test_moodle_s_names_say_whose_a_folder_or_file_is(tmp_path: Path) -> None:
    here = tree(
        tmp_path, "Ann Lee_101_assignsubmission_file_/a.py", "Ann Lee_101_assignsubmission_onlinetext_/t.html",
        "Ann Lee_102_assignsubmission_file_/a.py", "Ben Ito_103_assignsubmission_file_hw_1.py",
    )  # fmt: skip
    found = {one.key: one for one in handed_in([str(here)])}
    assert {key: (one.student.name, one.student.id, len(one.files)) for key, one in found.items()} == {
        "Ann Lee_101": ("Ann Lee", "Participant 101", 1), "Ann Lee_102": ("Ann Lee", "Participant 102", 1),
        "Ben Ito_103": ("Ben Ito", "Participant 103", 1),
    }  # fmt: skip


def test_canvas_s_names_count_only_where_all_names_are_such(tmp_path: Path) -> None:
    names = ("leeann_11_501_hw1.py", "leeann_11_502_hw2-1.py", "itoben_LATE_12_503_hw1.py")
    found = handed_in([str(tree(tmp_path / "all", *names))])
    assert {one.key: (one.student.id, len(one.files)) for one in found} == {
        "leeann_11": ("11", 2), "itoben_12": ("12", 1)
    }  # fmt: skip
    mixed = handed_in([str(tree(tmp_path / "mixed", "week_1_22_ann.py", "week_1_22_ben.py", "cleo.py"))])
    assert [len(one.files) for one in mixed] == [1, 1, 1], "these names are people's own"


def test_a_roster_names_students_adds_who_is_missing_and_merges_groups(tmp_path: Path) -> None:
    here = tree(tmp_path / "class", "u1.py", "Ben_Ito/a.py", "u3/a.py", "u4.py", "Team 2/a.py", "guest.py")
    roll = roll_of(here, "Name,ID,E-Mail,Section,Group\nAnn Lee,u1,,A,\nBen Ito,u2,,A,\nCleo Roe,u3,,A,Team 1\n"
                   "Dan Fox,u4,,A,Team 1\nEve Kim,u5,,B,Team 2\nFay Poe,u6,,B,\n")  # fmt: skip
    assert [(one.student.name, len(one.files), one.is_missing) for one in roll.submitted] == [
        ("Ann Lee", 1, False), ("Ben Ito", 1, False), ("Team 1", 2, False), ("Team 2", 1, False),
        ("Fay Poe", 0, True), ("", 1, False),
    ]  # fmt: skip
    assert [member.name for member in roll.submitted[2].student.members] == ["Cleo Roe", "Dan Fox"]
    (warning,) = roll.warnings
    assert "guest.py" in warning


def test_nobody_s_work_is_merged_with_another_s(tmp_path: Path) -> None:
    here = tree(tmp_path / "a" / "class", "Ann Lee/a.py", "Lee, Ann.py", "u2.py")
    roll = roll_of(here, "name,id\nAnn Lee,u1\nBen Ito,u2\n")
    assert [len(one.files) for one in roll.submitted] == [0, 1, 1, 1]
    (warning,) = roll.warnings
    assert warning.startswith("Ann Lee and Lee, Ann.py ")
    here = tree(tmp_path / "b" / "class", "Ann Lee.py")
    twins = roll_of(here, "name,id\nAnn Lee,u1\nAnn Lee,u2\n")
    assert [one.is_missing for one in twins.submitted] == [True, True, False], "it may be either's"
    here = tree(tmp_path / "c" / "class", "leeann_77_900_a.py", "itoben_78_901_a.py")
    numbers = roll_of(here, "name,id\nCleo Roe,77\nBen Ito,78\n")
    assert [(one.student.name, one.is_missing) for one in numbers.submitted] == [
        ("Cleo Roe", True), ("Ben Ito", False), ("leeann", False)
    ], "a number of one system is somebody else's in another"  # fmt: skip
    here = tree(tmp_path / "d" / "class", "u1.py", "u2.py")
    sections = roll_of(here, "name,id,section,group\nAnn,u1,A,Group 1\nBen,u2,B,Group 1\n")
    assert [len(one.files) for one in sections.submitted] == [1, 1], "each section has its own first group"


CANVAS = """Student,ID,SIS User ID,SIS Login ID,Section,HW 1 (44)
    Points Possible,,,,,10.00
"Lee, Ann",11,u1,alee,CS 1,
"Student, Test",99,,x,CS 1,
"Ito, Ben",12,u2,bito,CS 1,
"""


def test_canvas_s_gradebook_is_a_roster_as_it_is(tmp_path: Path) -> None:
    here = tree(tmp_path / "class", "leeann_11_501_hw1.py", "itoben_LATE_12_502_hw1.py")
    roll = roll_of(here, CANVAS)
    assert [(one.student.name, one.student.id, len(one.files)) for one in roll.submitted] == [
        ("Ann Lee", "11", 1), ("Ben Ito", "12", 1)
    ]  # fmt: skip
    assert roll.submitted[0].student.others == ("u1", "alee")
    assert [one.files[0].path[-8:] for one in roll_of(tree(tmp_path / "b", "bito.py", "u1.py"), CANVAS).submitted] == [
        "/b/u1.py", "/bito.py"
    ]  # fmt: skip


def test_names_in_any_order_are_one() -> None:
    assert name_forms("Lee, Ann Marie") == name_forms("Ann Marie Lee")
    assert "leeannmarie" in name_forms("Ann  Marie LEE")
    assert name_forms("Zoë") == name_forms("Zoe\u0308"), "in both forms of Unicode"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "no column says who a row is about; name one 'name', 'id' or 'email'"),
        ("", "no column says who"),
        ("name,id\nAnn,7\nBen,7\n", "lines 2 and 3 both have '7'; give each its own"),
        ('name,id\n"Ann,7\n', "unexpected end of data"),
    ],
)
def test_a_roster_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "roster.csv").write_text(text)
    with pytest.raises(CourseError) as refused:
        read_roster(tmp_path / "roster.csv")
    assert said in str(refused.value)
    assert "roster.csv" in str(refused.value)
    tree(tmp_path, "class/a.py")
    course.rules(tmp_path, "submissions = 'class'\nroster = 'roster.csv'\n")
    result = puzzles("class", tmp_path, "--trust")
    assert (result.exit_code, said in " ".join(result.stderr.split())) == (2, True)


@pytest.mark.parametrize("other", ["each_file = true", "roster = 'roster.csv'"])
def test_rules_that_contradict_each_other_are_refused(tmp_path: Path, other: str) -> None:
    with pytest.raises(CourseError):
        read_course(course.rules(tmp_path, f"one_student = true\n{other}\n"))


def test_a_submission_without_a_file_says_so(tmp_path: Path) -> None:
    here = tree(tmp_path / "class", "u1/report.pdf", "u2/")
    (tmp_path / "roster.csv").write_text("name,id\nAnn,u1\nBen,u2\nCleo,u3\n")
    course.rules(tmp_path, "roster = 'roster.csv'\n")
    said = puzzles("class", tmp_path, here, "--trust", "--json", "--puzzle", "basic")
    messages = {row["students"][0]["id"]: row["results"][0]["message"] for row in json.loads(said.stdout)["files"]}
    no_file = "there is no .py or .ipynb here"
    assert messages == {"u1": no_file, "u2": no_file, "u3": "nothing was handed in"}


# --- Students and teams of one name: each keeps their own files, grade, page and lateness, in every state and
# resumed ---


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
    book = {row["ID"]: row for row in csv_rows(folder / "book.csv")}
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

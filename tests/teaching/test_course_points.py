"""Points of a course hold in every report: partial, shown size, third star, late, from course.toml."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.teaching.course_file import Late, due_from, read_course
from puzzles.teaching.roster import CourseError
from tests.support import course
from tests.support.commands import csv_rows, puzzles
from tests.support.fake_grading import without_sandbox
from tests.support.relay import finished_folder

pytestmark = pytest.mark.usefixtures("in_this_process")


def late(text: str, folder: Path) -> Late:
    """The rule on what is late of a `[late]` with this text."""
    rule = read_course(course.rules(folder, f"[late]\n{text}\n")).late
    assert rule is not None
    return rule


def test_a_rule_on_lateness_is_read(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("Name,E-Mail,Due\nAnn Lee,,2026-11-23\n,b@x.example,2026-11-24T12:00Z\n")
    rule = late("due = 2026-11-20T18:00:00Z\nper_day = '20%'\ngrace = '15m'\nextensions = 'e.csv'", tmp_path)
    assert (rule.due, rule.per_day, rule.grace) == (due_from("2026-11-20T18:00+00:00"), 0.2, 900)
    assert rule.extensions["bxexample"] == due_from("2026-11-24T13:00+01:00")
    assert rule.extensions["annlee"] == due_from("2026-11-24T00:00"), "a date is over when its day is"
    assert late("due = 2026-11-20", tmp_path).per_day == 0.1
    assert late("due = '2026-11-20T18:00Z'\nper_day = 0.2", tmp_path).per_day == 0.2


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("per_day = '10%'", "'due'"),
        ("due = 'soon'", "'due'"),
        ("due = 2026-11-20\nper_day = 'lots'", "'per_day'"),
        ("due = 2026-11-20\nper_day = '120%'", "'120%'"),
        ("due = 2026-11-20\ngrace = '15'", "'grace'"),
        ("due = 2026-11-20\npenalty = 1", "'penalty'"),
        ("due = 2026-11-20\nextensions = 'none.csv'", "none.csv: "),
    ],
)
def test_a_rule_that_cannot_be_understood_is_refused(text: str, named: str, tmp_path: Path) -> None:
    with pytest.raises(OwnPuzzleError) as refused:
        late(text, tmp_path)
    assert named in str(refused.value)


def test_an_extension_needs_a_due(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,due\nu1,\n")
    with pytest.raises(CourseError, match="line 2: "):
        late("due = 2026-11-20\nextensions = 'e.csv'", tmp_path)


@pytest.fixture(scope="module")
def graded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[course.Known]]:
    """A class that was graded once by its course.toml, into every kind of report; and what is known of it."""
    folder = tmp_path_factory.mktemp("course")
    known = course.with_groups(course.students(len(course.KINDS)), 1)
    here = course.write(folder, known)
    (folder / "late.csv").write_text(f"id,due\n{known[3].id},2026-12-24\nnobody,2026-12-24\n")
    (folder / "course.toml").write_text(
        'roster = "roster.csv"\nthird_star = 2\npartial = 0.25\nshown_size = 0.4\n[points]\nbasic = 5\nddp = 10\n'
        '[late]\ndue = 2026-11-20T18:00:00Z\nper_day = "20%"\nextensions = "late.csv"\n'
    )
    outputs = [word for name in ("t.csv", "pages/", "r.html") for word in ("-o", folder / name)]
    with pytest.MonkeyPatch.context() as patch:
        without_sandbox(patch)
        result = puzzles("class", folder, here, "--trust", "--json", *outputs)
    (folder / "err").write_text(result.stderr)
    (folder / "out.json").write_text(result.stdout)
    return folder, known


def expected(one: course.Known) -> dict[str, float]:
    """By the script: points by puzzle, with what this course gives."""
    days = {0.0: 0, 0.5: 1, 2.0: 2}[one.days_late] if one.kind != "pdf" else 0
    kept = 1.0 if one.id == "s0003" else 1 - 0.2 * days
    shares = {"best": 1.0, "passed": 1.0, "over_target": 0.25, "shown_size": 0.4}
    found = {}
    for slug, points in course.POINTS.items():
        status = one.statuses.get(slug, "")
        found[slug] = (points * shares.get(status, 0.0) + 2 * (status == "best")) * kept
    return found


def test_every_report_has_the_points_that_the_class_is_known_to_have(
    graded: tuple[Path, list[course.Known]],
) -> None:
    folder, known = graded
    rows = {who["id"]: row for row in json.loads((folder / "out.json").read_text())["files"] for who in row["students"]}
    table = csv_rows(folder / "t.csv")
    pages = (folder / "pages" / "index.html").read_text()
    report = (folder / "r.html").read_text()
    for one in known:
        row, wanted = rows[one.id], expected(one)
        assert {v["puzzle"]: v["points"] for v in row["results"]} == pytest.approx(wanted), one
        assert row["points"] == pytest.approx(sum(wanted.values()))
        found = {r["puzzle"]: float(r["points"]) for r in table if r["submission"] == row["path"]}
        assert found == pytest.approx(wanted)
        late = f", {row['days_late']} day{'' if row['days_late'] == 1 else 's'} late" if row["days_late"] else ""
        assert f"<td>{sum(wanted.values()):g} of 15 points{late}</td>" in report
        assert f"<td>{sum(wanted.values()):g}<td>{row['days_late']}" in pages
    assert "'nobody'" in (folder / "err").read_text()


def test_what_works_only_at_the_shown_size_is_marked_in_every_table(graded: tuple[Path, list[course.Known]]) -> None:
    folder, known = graded
    (who,) = [one for one in known if one.kind == "shown"]
    (row,) = [r for r in csv_rows(folder / "t.csv") if r["shown_size_only"]]
    assert who.id in row["submission"]
    assert "★★!" in (folder / "pages" / "index.html").read_text()
    (found,) = [v for row in json.loads((folder / "out.json").read_text())["files"] for v in row["results"]
                if v["shown_size_only"]]  # fmt: skip
    assert found["puzzle"] == "basic"


@pytest.mark.usefixtures("stated_verdicts")
def test_one_student_sees_points_too(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(course.stated(basic="shown_size"))
    result = puzzles("class", course.rules(tmp_path, "[points]\nbasic = 6\n"), tmp_path / "a.py", "--trust")
    assert "3 of 6" in result.stdout
    assert "★★☆!" in result.stdout
    assert "3 of 6 points" in result.stdout
    (tmp_path / "b.py").write_text(course.stated(basic="passed"))
    both, report = (tmp_path / "a.py", tmp_path / "b.py"), tmp_path / "r.html"
    table = puzzles("grade", *both, "--puzzle", "basic", "--trust", "-o", report).stdout
    assert "★★☆!" in report.read_text()
    assert table.count("★★☆!") == 1
    assert "the shown size" in table
    plain = puzzles("grade", tmp_path / "a.py", "--puzzle", "basic", "--trust")
    assert " of 1" not in plain.stdout, "nobody has said what it is worth"


def test_a_course_adds_the_puzzles_beside_it(tmp_path: Path) -> None:
    week = finished_folder(tmp_path / "week3")
    (week / "course.toml").write_text("[points]\nrelay_schedule = 3\n")
    solution = week / "solutions" / "relay_schedule.py"
    (row,) = json.loads(puzzles("class", week, solution, "--trust", "--json").stdout)["files"]
    assert row["points"] == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("partial = 2", "'partial' is "),
        ("partal = 0.5", "did you mean 'partial'?"),
        ("[points]\nfspd = 3", "did you mean 'fsdp'?"),
        ("[points]\nfsdp = -1", "got -1"),
        ("[points]\nfsdp = nan", "got nan"),
        ("[points]\nfsdp = '3'", "got '3'"),
        ("submissions = 'none'", "no submissions"),
        ("[late]\nper_day = 0.1", "'due' is missing"),
        ("x = ", "course.toml: Invalid value"),
        ('roster = "none.csv"', "none.csv: No such file"),
    ],
)
def test_a_course_that_cannot_be_used_is_refused(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "course.toml").write_text(text)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.py").write_text("")
    paths = () if "submissions" in text else (tmp_path / "mine" / "a.py",)
    result = puzzles("class", tmp_path, *paths, "--trust")
    assert (result.exit_code, said in re.sub(r"\s+", " ", result.stderr)) == (2, True), result.stderr


@pytest.mark.usefixtures("stated_verdicts")
def test_times_are_those_of_the_newest_file(tmp_path: Path) -> None:
    ann = tmp_path / "class" / "ann"
    ann.mkdir(parents=True)
    for name, when in (("a.py", course.DUE - 5), ("b.py", course.DUE + 5)):
        (ann / name).write_text(course.stated(basic="passed") if name == "a.py" else "x = 1\n")
        os.utime(ann / name, (when, when))
    course.rules(tmp_path, "submissions = 'class'\n[late]\ndue = 2026-11-20T18:00:00Z\n")
    words = ("class", tmp_path, "--trust", "--puzzle", "basic", "--json")
    (row,) = json.loads(puzzles(*words).stdout)["files"]
    assert (row["points"], row["days_late"]) == (0.9, 1)


@pytest.mark.usefixtures("stated_verdicts")
def test_gradescope_gets_the_same_points(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(course.stated(basic="shown_size", ddp="best"))
    out = tmp_path / "r.json"
    course.rules(tmp_path, "third_star = 1\nshown_size = 0.25\n[points]\nbasic = 4\nddp = 4\n")
    puzzles("class", tmp_path, tmp_path / "a.py", "--trust", "-o", out)
    basic, ddp = json.loads(out.read_text())["tests"]
    assert (basic["score"], ddp["score"]) == (1, 5)
    assert "shown size only" in basic["tags"]

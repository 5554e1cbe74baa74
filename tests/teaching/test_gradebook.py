"""A gradebook of a class: every number is compared with what the script that made the class knows."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from click.testing import Result

from puzzles.judge.verdict import Graded, Scoring, Student, Verdict
from puzzles.teaching.export import gradebook
from tests.support import course
from tests.support.commands import puzzles

KEPT = {0.0: 1.0, 0.5: 0.9, 2.0: 0.8}
"""Share of the points by days late, at 10% a day."""


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def grade(folder: Path, here: Path, *more: object) -> Result:
    course.rules(
        folder,
        "roster = 'roster.csv'\ngradebook = 'book.csv'\n[points]\nbasic = 5\nddp = 10\n"
        "[late]\ndue = 2026-11-20T18:00:00Z\n",
    )
    return puzzles("class", folder, here, "--trust", "--limit", "time=4s", "-j", 2, *more)


def wanted(one: course.Known) -> dict[str, float]:
    kept = 1.0 if one.kind == "pdf" else KEPT[one.days_late]
    return {slug: points * kept for slug, points in one.points.items()}


def check(folder: Path, known: list[course.Known]) -> None:
    book = {row["ID"]: row for row in rows_of((folder / "book.csv").read_text())}
    assert list(next(iter(book.values()))) == ["Student", "ID", "Section", "basic", "ddp", "points"]
    assert len(book) == len(known)
    for one in known:
        row, points = book[one.id], wanted(one)
        assert {slug: float(row[slug]) for slug in points} == pytest.approx(points), one
        assert float(row["points"]) == pytest.approx(sum(points.values()))
        assert (row["Student"].strip(), row["Section"]) == (one.name, one.section)


@pytest.mark.usefixtures("stated_verdicts")
def test_every_number_of_a_gradebook_is_known(tmp_path: Path) -> None:
    known = course.with_groups(course.students(3 * len(course.KINDS)), 2)
    result = grade(tmp_path, course.write(tmp_path, known))
    assert result.exit_code == 1
    assert "book.csv" in result.stdout
    check(tmp_path, known)


@pytest.mark.slow
def test_a_class_of_300_that_is_run_has_every_number_right_and_its_index_stays_small(tmp_path: Path) -> None:
    known = course.with_groups(course.students(300), 10)
    grade(tmp_path, course.write(tmp_path, known, course.worked), "-o", f"{tmp_path / 'out'}/")
    check(tmp_path, known)
    assert (tmp_path / "out" / "index.html").stat().st_size < 100_000


PASSED = (Verdict("ddp", "schedule", "passed", {}),)


def test_a_group_has_a_row_for_each_member() -> None:
    team = Student("Team", members=(Student("Ann", "u1"), Student("Ben", "u2")))
    over = Verdict("ddp", "schedule", "over_target", {})
    rows = rows_of(gradebook([Graded("class/team", (over,), team)], ["ddp", "fsdp"], Scoring()))
    assert [row["ID"] for row in rows] == ["u1", "u2"]
    assert {(row["ddp"], row["fsdp"], row["points"]) for row in rows} == {("0.5", "0.0", "0.5")}


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n"])
def test_no_cell_is_a_formula_and_an_id_without_its_space_is_the_student_s(start: str) -> None:
    who = Student(f"{start}1+1", f"{start}17", section=f"{start}A")
    text = gradebook([Graded("a.py", PASSED, who)], ["ddp"], Scoring())
    cells = [cell for row in csv.reader(io.StringIO(text, newline="")) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "+", "-", "@", "\t", "\r", "\n"))]
    assert [cell.strip() for cell in cells[5:8]] == [who.name.strip(), who.id.strip(), who.section.strip()]


@pytest.mark.parametrize(
    ("who", "told"),
    [
        (Student("Ann", "7", "a@b.example"), "7"), (Student("Ann", email="a@b.example"), "a@b.example"),
        (Student("Ann", others=("alee",)), "alee"), (Student("Ann"), "Ann"), (Student(), "ann"),
    ],
)  # fmt: skip
def test_no_row_is_without_an_id(who: Student, told: str) -> None:
    """Moodle would give it to the student above."""
    (row,) = rows_of(gradebook([Graded("class/ann.py", PASSED, who)], ["ddp"], Scoring()))
    assert row["ID"] == told

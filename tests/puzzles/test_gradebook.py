"""A gradebook of a class: every number is compared with what the script that made the class knows."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from puzzles.commands.main import main
from puzzles.course.points import Scoring
from puzzles.grading.verdict import Graded, Student, Verdict
from puzzles.reports.export import canvas, gradebook
from tests.support import course

KEPT = {0.0: 1.0, 0.5: 0.9, 2.0: 0.8}
"""Share of the points by days late, at 10% a day."""


def puzzles(*words: object) -> Result:
    result = CliRunner().invoke(main, list(map(str, words)))
    assert isinstance(result.exception, SystemExit | None), result.exc_info
    return result


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text, newline="")))


def grade(folder: Path, known: list[course.Known], *more: object) -> Result:
    here = course.write(folder, known)
    return puzzles(
        *("grade", here, "--trust", "--roster", folder / "roster.csv", "--puzzle", "basic", "--puzzle", "ddp"),
        *("--points", "basic=5,ddp=10", "--late", "due=2026-11-20T18:00Z", "--limit", "time=4s", "-j", 2),
        *("--gradebook", folder / "book.csv", "--canvas", folder / "canvas.csv", "--assignment", "HW 1"),
        *more,
    )


def wanted(one: course.Known) -> dict[str, float]:
    kept = 1.0 if one.kind == "pdf" else KEPT[one.days_late]
    return {slug: points * kept for slug, points in one.points.items()}


def check(folder: Path, known: list[course.Known]) -> None:
    book = {row["id"]: row for row in rows_of((folder / "book.csv").read_text())}
    assert len(book) == len(known)
    for one in known:
        row, points = book[one.id], wanted(one)
        assert {slug: float(row[slug]) for slug in points} == pytest.approx(points), one
        assert float(row["points"]) == pytest.approx(sum(points.values()))
        assert row["max_points"] == "15.0"
        assert row["days_late"] == str({0.0: 0, 0.5: 1, 2.0: 2}[0.0 if one.kind == "pdf" else one.days_late])
        assert (row["name"].removeprefix("'"), row["email"], row["section"], row["group"]) == (
            one.name, one.email, one.section, one.group
        )  # fmt: skip
    first, *others = rows_of((folder / "canvas.csv").read_text())
    assert list(first) == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "HW 1"]
    assert (first["Student"].strip(), first["HW 1"]) == ("Points Possible", "15.0")
    assert {row["SIS User ID"]: float(row["HW 1"]) for row in others} == pytest.approx(
        {one.id: sum(wanted(one).values()) for one in known}
    )


# The last kind is the loop, which takes four seconds.
@pytest.mark.parametrize("kinds", [len(course.KINDS) - 1, pytest.param(len(course.KINDS), marks=pytest.mark.slow)])
def test_every_number_of_a_gradebook_is_known(kinds: int, tmp_path: Path) -> None:
    known = course.with_groups(course.students(kinds), 1)
    result = grade(tmp_path, known)
    assert result.exit_code == 1
    assert "book.csv" in result.stdout
    check(tmp_path, known)


@pytest.mark.slow
def test_a_class_of_300_is_graded_with_every_number_right_and_its_index_stays_small(tmp_path: Path) -> None:
    known = course.with_groups(course.students(300), 10)
    grade(tmp_path, known, "-o", f"{tmp_path / 'out'}/")
    check(tmp_path, known)
    assert (tmp_path / "out" / "index.html").stat().st_size < 100_000


CANVAS_ROW = {
    "Student": "Lee, Ann",
    "ID": "11",
    "SIS User ID": "u1",
    "SIS Login ID": "alee",
    "Section": "CS 1",
    "HW 1 (44)": "",
}


def test_canvas_gets_its_own_numbers_back() -> None:
    student = Student("Ann Lee", "11", section="CS 1", others=("u1", "alee"), row=CANVAS_ROW)
    graded = [Graded("a.py", (Verdict("ddp", "schedule", "passed", {}),), student)]
    (possible, row) = rows_of(canvas(graded, ["ddp"], Scoring({"ddp": 7}), "HW 1"))
    assert row == {**CANVAS_ROW, "HW 1 (44)": "7.0"}
    assert possible["HW 1 (44)"] == "7"


def test_no_cell_is_a_formula_and_a_group_has_a_row_for_each_member() -> None:
    team = Student("Team", members=(Student("=1+1", "@a"), Student("Ben", "u2")))
    graded = [Graded("class/team", (Verdict("ddp", "schedule", "over_target", {}),), team)]
    one, two = rows_of(gradebook(graded, ["ddp", "fsdp"], Scoring()))
    assert (one["name"], one["id"], two["name"]) == ("'=1+1", "'@a", "Ben")
    assert {(row["ddp"], row["fsdp"], row["points"], row["max_points"]) for row in (one, two)} == {
        ("0.5", "0.0", "0.5", "2.0")
    }

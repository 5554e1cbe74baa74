"""Each rule of verdicts as data: when a class has passed, what JSON says, and which rows are read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from puzzles.judge.verdict import LOST, STATUSES, Graded, Shared, Student, Verdict, all_passed, as_json
from tests.support.fake_track import TIME, Fakes, a_verdict


def graded(*statuses: str) -> Graded:
    return Graded("a.py", tuple(a_verdict(status=status) for status in statuses))


# --- Passed, attempted, lost ---


@pytest.mark.parametrize(
    ("files", "passed"),
    [
        ([graded("passed", "passed"), graded("passed")], True),
        ([graded("passed", "not_attempted"), graded("not_attempted")], True),
        ([graded("passed"), graded("over_target")], False),
        ([graded("passed", "failed")], False),
        ([graded("not_attempted"), graded()], False),
        ([], False),
    ],
)
def test_all_have_passed_if_there_are_attempts_and_none_fails_or_is_over_target(
    files: list[Graded], passed: bool
) -> None:
    assert all_passed(files) is passed


def test_attempts_are_all_but_what_is_not_attempted() -> None:
    assert [verdict.status for verdict in graded(*STATUSES).attempted] == ["passed", "over_target", "failed"]


def test_a_file_is_lost_if_any_verdict_is() -> None:
    lost = Graded("a.py", (a_verdict(), a_verdict(status="failed", reason=LOST)))
    assert lost.is_lost
    assert not Graded("a.py", (a_verdict(), a_verdict(status="failed", reason="crash"))).is_lost


def test_a_group_is_its_members() -> None:
    members = Student("Ann"), Student("Bo")
    assert Student("Team", members=members).people == members
    assert Student("Ann").people == (Student("Ann"),)
    assert Student("Ann", "u7", "a@x.example", others=("", "ann7")).identifiers == ("u7", "a@x.example", "ann7")


# --- JSON ---


def test_json_has_the_figures_the_targets_and_the_reason(fakes: Fakes) -> None:
    verdict = a_verdict(figures={"time": 8}, notes=("a note",), why=("because",), reason="rule", message="no")
    assert verdict.as_json() == {
        "puzzle": "fake_a", "status": "passed", "reason": "rule", "stars": 2, "shown_size_only": False,
        "track": "fakes", "figures": {"time": 8}, "target": {"time": TIME}, "limits": {"time": {"at_most": TIME}},
        "message": "no", "notes": ["a note"],
    }  # fmt: skip
    assert verdict.as_json(why=True) == {**verdict.as_json(), "why": ["because"]}


def test_json_has_a_row_for_each_file_with_further_facts(fakes: Fakes) -> None:
    one, other = Graded("a.py", (a_verdict(), a_verdict("fake_b"))), Graded("b.py", ())

    def facts(submission: Graded, verdict: Verdict | None = None) -> dict[str, float]:
        return {"points": float(len(submission.verdicts)) if verdict is None else 1}

    report = as_json([one, other], facts=facts)
    assert report["version"] == 1
    assert [(row["path"], row["points"], len(row["results"])) for row in report["files"]] == [
        ("a.py", 2, 2), ("b.py", 0, 0)]  # fmt: skip
    assert report["files"][0]["results"][1] == {**a_verdict("fake_b").as_json(), "points": 1}
    assert "students" not in report["files"][0]


def test_json_names_the_people_of_a_row_without_empty_fields(fakes: Fakes) -> None:
    team = Student("Team", members=(Student("Ann", "u7"), Student(email="b@x.example")))
    (row,) = as_json([Graded("a.py", (), team, name="Team")])["files"]
    assert row["students"] == [{"name": "Ann", "id": "u7"}, {"email": "b@x.example"}]


# --- Rows of a checkpoint ---


def test_a_row_that_was_written_is_read_back(fakes: Fakes) -> None:
    full = a_verdict(
        figures={"time": 8}, reason="rule", message="no", notes=("a",), source="x", line=3, file="b.py", advice="b",
        printed=("c",), why=("d",), why_matters=True, family="e", second_step="f", shown_size_only=True, trace="{}",
    )  # fmt: skip
    submission = Graded("a.py", (full, a_verdict("fake_b", "not_attempted", 0)))
    assert Graded.of_row(json.loads(json.dumps(submission.row()))) == submission


@pytest.mark.parametrize(
    "change",
    [
        {"puzzle": "fake_z"},
        {"track": "schedule"},
        {"status": "perfect"},
        {"status": None},
        {"stars": "2"},
        {"stars": True},
        {"reason": 3},
        {"targets": []},
        {"targets": {"time": "10"}},
        {"figures": {"time": None}},
        {"notes": "a"},
        {"notes": [3]},
        {"printed": [None]},
        {"why": [[]]},
        {"shown_size_only": 1},
        {"medals": 1},
    ],
    ids=str,
)
def test_a_row_that_is_no_verdict_is_refused(fakes: Fakes, change: dict[str, Any]) -> None:
    row = json.loads(json.dumps(Graded("a.py", (a_verdict(),)).row()))
    Graded.of_row(row)
    row["verdicts"][0] |= change
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        Graded.of_row(row)


@pytest.mark.parametrize("row", [{}, {"path": 3, "verdicts": []}, {"path": "a.py"}, {"path": "a.py", "verdicts": [3]}])
def test_what_is_no_row_is_refused(row: Any) -> None:
    with pytest.raises((ValueError, KeyError, TypeError, AttributeError)):
        Graded.of_row(row)


def test_equal_verdicts_on_what_was_not_attempted_are_one_object() -> None:
    shared = Shared()
    skipped = [shared(Graded(name, (a_verdict(status="not_attempted"),))).verdicts[0] for name in "ab"]
    assert skipped[0] is skipped[1]
    other = a_verdict(status="not_attempted", message="it is no Python")
    assert shared(Graded("c", (other,))).verdicts[0] is other
    tried = [shared(Graded(name, (a_verdict(figures={"time": 8}),))).verdicts[0] for name in "ab"]
    assert tried[0] is not tried[1]

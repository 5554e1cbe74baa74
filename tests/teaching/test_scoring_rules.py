"""Each rule of points and lateness, on verdicts that are written down."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.judge.verdict import Graded, Scoring, Student, Verdict
from puzzles.teaching.course_file import DAY, Late, late_from
from tests.support.fake_track import a_verdict

DUE = 1_000_000.0


# --- Points ---


def test_a_puzzle_is_worth_one_point_unless_the_course_says_otherwise() -> None:
    scoring = Scoring({"fake_a": 8})
    assert (scoring.most("fake_a"), scoring.most("fake_b")) == (8, 1)


@pytest.mark.parametrize(
    ("verdict", "points"),
    [
        (a_verdict(stars=3), 11),
        (a_verdict(stars=2), 8),
        (a_verdict(stars=2, shown_size_only=True), 6),
        (a_verdict(status="over_target", stars=1), 2),
        (a_verdict(status="over_target", stars=1, shown_size_only=True), 1.5),
        (a_verdict(status="failed", stars=0), 0),
        (a_verdict(status="not_attempted", stars=0), 0),
    ],
)
def test_points_are_shares_of_the_puzzles_points_and_the_third_star_adds(verdict: Verdict, points: float) -> None:
    assert Scoring({"fake_a": 8}, partial=0.25, third_star=3, shown_size=0.75).earned(verdict) == points


def test_by_default_half_the_points_are_for_over_target_and_for_the_shown_size_and_none_for_the_third_star() -> None:
    scoring = Scoring()
    assert scoring.earned(a_verdict(stars=3)) == 1
    assert scoring.earned(a_verdict(status="over_target", stars=1)) == 0.5
    assert scoring.earned(a_verdict(shown_size_only=True)) == 0.5


def graded(*verdicts: Verdict, late: float | None = None) -> Graded:
    return Graded("a.py", verdicts, Student("Ann Lee", submitted=None if late is None else DUE + late * DAY))


def test_lateness_takes_its_share_of_every_verdict_and_of_the_total() -> None:
    scoring = Scoring({"fake_a": 8}, third_star=1, late=Late(DUE, 0.25))
    verdicts = a_verdict(stars=3), a_verdict("fake_b")
    in_time, late = graded(*verdicts, late=0), graded(*verdicts, late=1)
    assert [scoring.score(in_time, verdict) for verdict in verdicts] == [9, 1]
    assert [scoring.score(late, verdict) for verdict in verdicts] == [6.75, 0.75], "the third star's points too"
    assert (scoring.total(in_time), scoring.total(late)) == (10, 7.5)


def test_points_have_four_decimals() -> None:
    assert Scoring({"fake_a": 1}, partial=1 / 3).score(graded(), a_verdict(status="over_target")) == 0.3333


def test_reports_mention_points_only_where_the_course_has_stated_any() -> None:
    verdict = a_verdict(stars=2)
    submission = graded(verdict, late=3)
    assert Scoring(late=Late(DUE)).facts(submission) == Scoring().facts(submission, verdict) == {}
    stated = Scoring({"fake_a": 8}, is_stated=True)
    assert stated.facts(submission, verdict) == {"points": 8, "max_points": 8}
    assert stated.facts(submission) == {"points": 8}, "nothing is said of lateness without a due date"
    late = Scoring({"fake_a": 8}, late=Late(DUE), is_stated=True)
    assert late.facts(submission) == {"points": 5.6, "days_late": 3}
    assert late.facts(submission, verdict) == {"points": 5.6, "max_points": 8}


# --- Lateness ---


@pytest.mark.parametrize(
    ("seconds", "days"), [(-DAY, 0), (0, 0), (600, 0), (601, 1), (DAY, 1), (DAY + 1, 2), (2 * DAY, 2)]
)
def test_each_day_that_has_begun_counts_once_the_grace_is_over(seconds: float, days: int) -> None:
    assert Late(DUE, grace=600).days(Student("Ann", submitted=DUE + seconds)) == days


def test_who_handed_in_at_an_unknown_time_is_not_late() -> None:
    assert Late(DUE).days(Student("Ann")) == 0


@pytest.mark.parametrize(("days", "share"), [(0, 1), (1, 0.7), (3, 0.1), (4, 0), (40, 0)])
def test_each_day_costs_its_share_until_nothing_is_left(days: int, share: float) -> None:
    assert Late(DUE, 0.3).kept(Student("Ann", submitted=DUE + days * DAY)) == pytest.approx(share)


@pytest.mark.parametrize(
    "who",
    [{"id": "U7"}, {"email": "u7@x.example"}, {"name": "Lee, Ann"}, {"name": "Ann Lee"}, {"others": ("login7",)}],
)
def test_an_extension_is_found_by_every_identifier_and_by_the_name(who: dict[str, Any]) -> None:
    extensions = dict.fromkeys(("u7", "u7xexample", "annlee", "login7"), DUE + 2 * DAY)
    late = Late(DUE, extensions=extensions)
    assert late.days(Student(**who, submitted=DUE + 2 * DAY)) == 0
    assert late.days(Student(**who, submitted=DUE + 2 * DAY + 1)) == 1
    assert late.days(Student("Bo", submitted=DUE + DAY)) == 1


def test_an_extension_never_shortens_the_time() -> None:
    assert Late(DUE, extensions={"u7": DUE - DAY}).days(Student(id="u7", submitted=DUE)) == 0


def test_a_group_has_the_latest_due_date_of_its_members() -> None:
    late = Late(DUE, extensions={"u7": DUE + DAY, "u8": DUE + 2 * DAY})
    members = tuple(Student(id=name) for name in ("u6", "u8", "u7"))
    assert late.days(Student("Team", members=members, submitted=DUE + 2 * DAY)) == 0
    assert late.days(Student("Team", members=members[:1], submitted=DUE + 2 * DAY)) == 2


def test_an_extension_counts_if_one_student_or_group_alone_has_its_word() -> None:
    late = Late(DUE, extensions=dict.fromkeys(("u7", "annlee", "bochan", "u9"), DUE + DAY))
    team = Student("Team", members=(Student(id="u7"), Student("Lee, Ann")))
    sure, doubtful = late.of_class([team, Student("Bo Chan", "u1"), Student("Bo Chan", "u2")])
    assert sorted(sure.extensions) == ["annlee", "u7"]
    assert doubtful == ["bochan", "u9"], "two students of one name, and nobody"


# --- Reading them ---


@pytest.mark.parametrize(("text", "seconds"), [("15m", 900), ("2h", 7_200), ("1d", DAY), ("0m", 0)])
def test_a_grace_period_has_a_unit(text: str, seconds: float, tmp_path: Path) -> None:
    late = late_from(Fields("here", {"due": "2026-11-20", "grace": text}), tmp_path)
    assert (late.grace, late.per_day) == (seconds, 0.1)


@pytest.mark.parametrize(("text", "share"), [("10%", 0.1), ("0.1", 0.1), ("100%", 1), ("0", 0), ("1", 1)])
def test_a_share_is_a_percentage_or_a_number(text: str, share: float, tmp_path: Path) -> None:
    assert late_from(Fields("here", {"due": "2026-11-20", "per_day": text}), tmp_path).per_day == share


@pytest.mark.parametrize("text", ["-1%", "101%", "1.1", "nan", "inf", "ten", "%"])
def test_a_share_is_from_none_to_all(text: str, tmp_path: Path) -> None:
    with pytest.raises(OwnPuzzleError, match="here"):
        late_from(Fields("here", {"due": "2026-11-20", "per_day": text}), tmp_path)


def test_a_date_is_over_when_its_day_is(tmp_path: Path) -> None:
    dates = [
        late_from(Fields("", {"due": text}), tmp_path).due
        for text in ("2026-11-20", "2026-11-21T00:00", "2026-11-20T18:00")
    ]
    assert dates[0] == dates[1] == dates[2] + 6 * 3600


def test_an_extension_has_the_names_only_of_who_has_no_identifier(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("Name,ID,Due\nAnn Lee,u7,2026-11-23\nBo Chan,,2026-11-24\n")
    extensions = late_from(Fields("", {"due": "2026-11-20", "extensions": "e.csv"}), tmp_path).extensions
    assert "u7" in extensions
    assert "bochan" in extensions
    assert "annlee" not in extensions, "another student may have the same name"

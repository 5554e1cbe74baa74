"""Points of a course: which name counts, shares, lateness, course.toml, the gradebook; the same in every report."""

import csv
import io
import json
import os
import re
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from puzzles.catalog.fields import Fields, OwnPuzzleError
from puzzles.custom import folder_added
from puzzles.judge.verdict import Graded, Scoring, Student, Verdict
from puzzles.teaching.course_file import DAY, Late, due_from, late_from, points_from, read_course
from puzzles.teaching.export import gradebook
from puzzles.teaching.roster import CourseError
from puzzles.tracks import ALL, UnknownPuzzleError, find_group, find_several
from tests.support import course
from tests.support.commands import csv_rows, puzzles
from tests.support.fake_grading import without_sandbox
from tests.support.fake_track import a_verdict
from tests.support.relay import TRACKS, finished_folder

pytestmark = pytest.mark.usefixtures("in_this_process")

# --- Each rule of points and lateness, on verdicts that are written down ---


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


@pytest.mark.parametrize(
    ("field", "text", "value"),
    [
        *(("grace", text, seconds) for text, seconds in (("15m", 900), ("2h", 7_200), ("1d", DAY), ("0m", 0))),
        *(("per_day", text, share) for text, share in (("10%", 0.1), ("0.1", 0.1), ("100%", 1), ("0", 0), ("1", 1))),
    ],
)
def test_a_grace_period_has_a_unit_and_a_share_is_a_percentage_or_a_number(
    field: str, text: str, value: float, tmp_path: Path
) -> None:
    assert getattr(late_from(Fields("here", {"due": "2026-11-20", field: text}), tmp_path), field) == value


@pytest.mark.parametrize("text", ["-1%", "101%", "1.1", "nan", "inf", "ten", "%"])
def test_a_share_is_from_none_to_all(text: str, tmp_path: Path) -> None:
    with pytest.raises(OwnPuzzleError, match="here"):
        late_from(Fields("here", {"due": "2026-11-20", "per_day": text}), tmp_path)


def test_an_extension_has_the_names_only_of_who_has_no_identifier(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("Name,ID,Due\nAnn Lee,u7,2026-11-23\nBo Chan,,2026-11-24\n")
    extensions = late_from(Fields("", {"due": "2026-11-20", "extensions": "e.csv"}), tmp_path).extensions
    assert "u7" in extensions
    assert "bochan" in extensions
    assert "annlee" not in extensions, "another student may have the same name"


# --- Points of puzzles: of several names that mean a puzzle the most specific counts, in any order ---


def test_the_most_specific_name_counts_in_any_order(tmp_path: Path) -> None:
    pairs = {"relay_engine": 1, "week3-engine": 2, "week3": 3, "engine": 4, "schedule:fsdp": 5, "classics": 6,
             "schedule": 7}  # fmt: skip
    wanted = {"relay_engine": 1, "relay_layout": 3, "relay_schedule": 3, "FSDP": 4, "fsdp": 5, "ddp": 6, "gpipe": 6,
              "zb_v": 7, "ffn": 1}  # fmt: skip
    with folder_added(finished_folder(tmp_path / "week3")):
        for number, order in enumerate(permutations(pairs.items())):
            if number % 97 == 0:  # 52 of 5,040
                points = points_from(dict(order), "")
                assert {slug: points[slug] for slug in wanted} == wanted, order
        assert points_from({"relay_engine": 1, "week3-engine": 2}, "")["relay_engine"] == 1, "a chapter of one puzzle"


@pytest.mark.parametrize("names", [("fsdp", "schedule:fsdp"), ("fsdp", "7"), ("data", "DATA"), ("engine", "Engine")])
def test_contradictions_are_refused(names: tuple[str, str]) -> None:
    for first, second in (names, names[::-1]):
        with pytest.raises(CourseError) as refused:
            points_from({first: 1, second: 2}, "")
        assert {first, second} <= {*re.findall(r"[\w:]+", str(refused.value))}
    assert points_from(dict.fromkeys(names, 2), "")[find_several(names[0])[0]] == 2, "the same twice is none"


def test_a_folder_with_several_tracks_has_a_name_for_all(tmp_path: Path) -> None:
    both, one = tmp_path / "Week3", tmp_path / "b" / "week4"
    finished_folder(both)
    finished_folder(one)
    for path in one.glob("*.toml"):
        if path.stem == "relay_engine":
            path.rename(one / "other.toml")
            text = (one / "other.toml").read_text().replace("relay_engine", "other")
            (one / "other.toml").write_text(text.replace("trials/other", "trials/relay_engine"))
        else:
            path.unlink()
    with folder_added(both), folder_added(one):
        slugs = {f"relay_{track}" for track in TRACKS}
        assert set(find_several("week3")) == set(find_several("WEEK3")) == slugs
        assert find_several("week3-engine") == ("relay_engine",)
        assert find_several("week4") == ("other",)
        assert find_group("") is None
        assert set(find_several("engine")) > {"relay_engine", "other"}
    with pytest.raises(UnknownPuzzleError):
        find_several("week3")
    assert not slugs & set(ALL)


# --- Points of a course hold in every report: partial, shown size, third star, late, from course.toml ---


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
        ("due = 'soon'", "'due'"),
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
def of_a_class(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[course.Known]]:
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
    of_a_class: tuple[Path, list[course.Known]],
) -> None:
    folder, known = of_a_class
    rows = {who["id"]: row for row in json.loads((folder / "out.json").read_text())["files"] for who in row["students"]}
    table = csv_rows(folder / "t.csv")
    pages = (folder / "pages" / "index.html").read_text()
    report = (folder / "r.html").read_text()
    for one in known:
        row, wanted = rows[one.id], expected(one)
        statuses = {slug: one.statuses.get(slug, "not_attempted") for slug in course.POINTS}
        assert {v["puzzle"]: v["status"] for v in row["results"]} == {
            slug: "passed" if status in ("shown_size", "best") else status for slug, status in statuses.items()
        }
        assert {v["puzzle"]: v["points"] for v in row["results"]} == pytest.approx(wanted), one
        assert row["points"] == pytest.approx(sum(wanted.values()))
        found = {r["puzzle"]: float(r["points"]) for r in table if r["submission"] == row["path"]}
        assert found == pytest.approx(wanted)
        late = f", {row['days_late']} day{'' if row['days_late'] == 1 else 's'} late" if row["days_late"] else ""
        assert f"<td>{sum(wanted.values()):g} of 15 points{late}</td>" in report
        assert f"<td>{sum(wanted.values()):g}<td>{row['days_late']}" in pages
    assert "'nobody'" in (folder / "err").read_text()


def test_what_works_only_at_the_shown_size_is_marked_in_every_table(
    of_a_class: tuple[Path, list[course.Known]],
) -> None:
    folder, known = of_a_class
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


# --- A gradebook of a class: every number is compared with what the script that made the class knows ---


KEPT = {0.0: 1.0, 0.5: 0.9, 2.0: 0.8}
"""Share of the points by days late, at 10% a day."""


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
    book = {row["ID"]: row for row in csv_rows(folder / "book.csv")}
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
@pytest.mark.sandboxed
def test_a_class_of_300_that_is_run_has_every_number_right_and_its_index_stays_small(tmp_path: Path) -> None:
    known = course.with_groups(course.students(300), 10)
    grade(tmp_path, course.write(tmp_path, known, course.worked), "-o", f"{tmp_path / 'out'}/")
    check(tmp_path, known)
    assert (tmp_path / "out" / "index.html").stat().st_size < 100_000


PASSED = (Verdict("ddp", "schedule", "passed", {}),)


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
    _, row = gradebook([Graded("class/ann.py", PASSED, who)], ["ddp"], Scoring()).splitlines()
    assert row.split(",")[1] == told

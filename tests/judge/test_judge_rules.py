"""Each rule of the judge, of verdicts as data, and of a player's progress, on a track whose runs are written down."""

import json
import re
from dataclasses import asdict, dataclass
from decimal import ROUND_DOWN, Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lib import Goal, Size
from puzzles.catalog.fields import OwnPuzzleError
from puzzles.catalog.path import CORE
from puzzles.failure import Failure
from puzzles.judge import progress
from puzzles.judge.judge import UNGRADABLE, Definition, judge_saved
from puzzles.judge.progress import PuzzleProgress, add, next_slug, solved_slugs
from puzzles.judge.submission import MAX_FILE_SIZE
from puzzles.judge.verdict import LOST, STATUSES, Graded, Shared, Student, Verdict, all_passed, as_json
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks import ALL, chapter_of, track_of
from puzzles.tracks.outcomes import RunOutcome, Score
from tests.support.fake_track import RIGHT, SLOW, TIME, WRONG, FakeRun, Fakes, a_verdict, fake_puzzle, judged

# --- Each rule of the judge, on a track whose runs are written down ---


def stated(verdict: Verdict) -> tuple[str, int]:
    return verdict.status, verdict.stars


# --- Stars ---


def test_right_at_every_size_has_three_stars(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3"), FakeRun("n = 4", hidden=False))
    assert stated(verdict) == ("passed", 3)
    assert fakes.asked == ["n = 2", "n = 3", "n = 4"]
    assert (verdict.figures, verdict.targets) == ({"time": 8}, {"time": TIME})
    assert (verdict.message, verdict.notes, verdict.reason, verdict.shown_size_only) == ("", (), None, False)


@pytest.mark.parametrize("stars", [1, 2])
def test_no_solution_has_more_stars_than_its_run_at_the_shown_size(fakes: Fakes, stars: int) -> None:
    assert stated(judged(fakes, FakeRun("n = 2", RIGHT._replace(stars=stars)), FakeRun("n = 3"))) == ("passed", stars)


def test_stars_of_runs_at_other_sizes_do_not_count(fakes: Fakes) -> None:
    assert stated(judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", RIGHT._replace(stars=2)))) == ("passed", 3)


def test_targets_missed_at_the_shown_size_leave_one_star(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2", SLOW._replace(stars=3)), FakeRun("n = 3"))
    assert stated(verdict) == ("over_target", 1)
    assert verdict.message.endswith("it takes 12")
    assert verdict.figures == {"time": 12}


@pytest.mark.parametrize("hidden", [True, False])
def test_targets_missed_at_another_size_cost_the_second_star(fakes: Fakes, hidden: bool) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", SLOW, hidden))
    assert stated(verdict) == ("over_target", 1)
    assert verdict.message.endswith("n = 3: it takes 12")
    assert verdict.figures == {"time": 8}, "the figures are those of the shown size"


def test_the_missed_targets_of_the_first_such_size_are_stated(fakes: Fakes) -> None:
    two = SLOW._replace(missed=("it takes 12", "it sends 5"))
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3"), FakeRun("n = 4", two), FakeRun("n = 5", SLOW))
    assert all(f"n = 4: {words}" in verdict.message for words in two.missed)
    assert "n = 5" not in verdict.message
    both = judged(fakes, FakeRun("n = 2", SLOW._replace(missed=("it takes 13",))), FakeRun("n = 3", two))
    assert "n = 3" not in both.message, "the shown size comes first"


def test_missed_targets_name_no_size_where_only_the_case_differs(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("", SLOW))
    assert verdict.message == judged(fakes, FakeRun("n = 2", SLOW)).message


def test_a_remark_at_another_size_costs_the_third_star(fakes: Fakes) -> None:
    remarks = [FakeRun(f"n = {n}", RIGHT._replace(remark=f"it is {n} times as slow")) for n in (3, 4)]
    verdict = judged(fakes, FakeRun("n = 2"), *remarks)
    assert stated(verdict) == ("passed", 2)
    (note,) = verdict.notes
    assert ("n = 3" in note, "3 times" in note) == (True, True), "the first"
    assert not verdict.shown_size_only


def test_a_remark_is_noted_where_a_target_is_missed_at_another_size(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", SLOW._replace(remark="it is slow")))
    assert (stated(verdict), len(verdict.notes)) == (("over_target", 1), 1)


def test_a_remark_is_left_out_where_the_shown_size_misses_a_target(fakes: Fakes) -> None:
    remark = FakeRun("n = 3", RIGHT._replace(remark="it is slow"))
    assert judged(fakes, FakeRun("n = 2", SLOW), remark).notes == ()


# --- Failures at other sizes ---


def test_a_failure_at_a_hidden_size_costs_the_third_star_and_is_noted(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", WRONG), FakeRun("n = 4", Failure("crash", "no")))
    assert (stated(verdict), verdict.shown_size_only) == (("passed", 2), True)
    (note,) = verdict.notes
    assert all(words in note for words in ("n = 2", "n = 3", WRONG.message))
    assert "n = 4" not in note, "the first"
    assert fakes.asked == ["n = 2", "n = 3", "n = 4"]


def test_a_failure_at_a_stated_size_fails(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", WRONG, hidden=False), FakeRun("n = 4"))
    assert (stated(verdict), verdict.reason, verdict.line) == (("failed", 0), "rule", 3)
    assert "n = 3" in verdict.message
    assert verdict.figures == {}
    assert fakes.asked == ["n = 2", "n = 3"], "nothing runs after it"


def test_a_failure_at_a_hidden_size_fails_with_strict(fakes: Fakes) -> None:
    runs = FakeRun("n = 2"), FakeRun("n = 3", WRONG)
    verdict = judged(fakes, *runs, strict=True)
    assert (stated(verdict), verdict.reason, verdict.figures) == (("failed", 0), "rule", {})
    assert verdict.message == judged(fakes, *runs).notes[0]


def test_strict_fails_neither_a_remark_nor_missed_targets(fakes: Fakes) -> None:
    remark = FakeRun("n = 3", RIGHT._replace(remark="it is slow"))
    assert stated(judged(fakes, FakeRun("n = 2"), remark, strict=True)) == ("passed", 2)
    assert stated(judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", SLOW), strict=True)) == ("over_target", 1)


def test_a_failure_at_a_hidden_size_is_noted_without_remarks(fakes: Fakes) -> None:
    remark = FakeRun("n = 3", RIGHT._replace(remark="it is slow"))
    (note,) = judged(fakes, FakeRun("n = 2"), remark, FakeRun("n = 4", WRONG)).notes
    assert "n = 4" in note


def test_a_failure_at_a_hidden_size_forgives_no_missed_target(fakes: Fakes) -> None:
    for runs in ((FakeRun("n = 2", SLOW), FakeRun("n = 3", WRONG)),
                 (FakeRun("n = 2"), FakeRun("n = 3", WRONG), FakeRun("n = 4", SLOW))):  # fmt: skip
        verdict = judged(fakes, *runs)
        assert (stated(verdict), verdict.shown_size_only, len(verdict.notes)) == (("over_target", 1), True, 1)


def test_a_definition_that_is_absent_at_another_size_fails_there(fakes: Fakes) -> None:
    absent = FakeRun("n = 3", outcome=RunOutcome())
    assert judged(fakes, FakeRun("n = 2"), absent).shown_size_only
    stated_size = FakeRun("n = 3", hidden=False, outcome=RunOutcome())
    assert judged(fakes, FakeRun("n = 2"), stated_size).reason == "incomplete"


# --- What is not attempted, and what fails at the shown size ---


def test_an_unchanged_starter_is_not_attempted_and_not_run(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), definition=Definition(sketch=Sketch("other", ("print",))))
    assert (stated(verdict), fakes.asked) == (("not_attempted", 0), [])
    begun = Definition(sketch=Sketch("other", ("forward",)))
    assert stated(judged(fakes, FakeRun("n = 2"), definition=begun)) == ("passed", 3), "no starter calls this"


def test_a_name_that_is_not_defined_is_not_attempted(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2", outcome=RunOutcome()), FakeRun("n = 3"))
    assert (stated(verdict), fakes.asked) == (("not_attempted", 0), ["n = 2"])


@pytest.mark.parametrize(("exists", "status", "reason"), [(True, "failed", "syntax"), (False, "not_attempted", None)])
def test_a_file_that_cannot_be_read_fails_what_it_defines(
    fakes: Fakes, exists: bool, status: str, reason: str | None
) -> None:
    problem = Failure("syntax", "this is not Python", 7)
    verdict = judged(fakes, FakeRun("n = 2"), definition=Definition(exists, problem=problem))
    assert (verdict.status, verdict.reason, fakes.asked) == (status, reason, [])
    assert verdict.message == problem.message, "said in both cases"


def test_nothing_runs_after_a_failure_at_the_shown_size(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2", WRONG), FakeRun("n = 3"))
    assert (stated(verdict), verdict.reason, verdict.message) == (("failed", 0), "rule", WRONG.message)
    assert (fakes.asked, verdict.figures) == (["n = 2"], {})


def test_a_run_that_fails_may_turn_out_not_to_define_the_name(fakes: Fakes) -> None:
    run = FakeRun("n = 2", outcome=RunOutcome(failure=Failure("crash", "boom")))
    assert judged(fakes, run, definition=Definition(exists=False)).status == "not_attempted"
    assert judged(fakes, run, definition=Definition(exists=True)).status == "failed"
    assert judged(fakes, FakeRun("n = 2", WRONG), definition=Definition(exists=False)).status == "failed", "it has run"


def test_a_refusal_without_a_line_is_shown_at_the_definition(fakes: Fakes) -> None:
    definition, refusal = Definition(line=5), Failure("rule", "no")
    assert judged(fakes, FakeRun("n = 2", refusal), definition=definition).line == 5
    assert judged(fakes, FakeRun("n = 2", WRONG), definition=definition).line == WRONG.line
    assert judged(fakes, FakeRun("n = 2", Failure("crash", "no")), definition=definition).line == 0
    ended = RunOutcome(failure=refusal)
    assert judged(fakes, FakeRun("n = 2", outcome=ended), definition=definition).line == 0, "the run said all it knows"


@pytest.mark.parametrize(("method", "line"), [("forward", 7), ("backward", 9), ("inherited", 0), ("", 0)])
def test_a_refusal_of_a_class_is_shown_at_its_method_at_any_size(fakes: Fakes, method: str, line: int) -> None:
    definition = Definition(line=5, sketch=Sketch("other", None, (("forward", 7), ("backward", 9))))
    refusal = Failure("rule", "no", method=method)
    assert judged(fakes, FakeRun("n = 2", refusal), definition=definition).line == line
    elsewhere = FakeRun("n = 3", refusal, hidden=False)
    assert judged(fakes, FakeRun("n = 2"), elsewhere, definition=definition).line == line
    known = FakeRun("n = 2", refusal._replace(line=11))
    assert judged(fakes, known, definition=definition).line == 11, "the line says more"


def test_a_coroutine_that_was_forgotten_is_named_with_the_failure(fakes: Fakes) -> None:
    forgot = RunOutcome(row={}, forgotten="'send' was never awaited")
    assert forgot.forgotten in judged(fakes, FakeRun("n = 2", WRONG, outcome=forgot)).message
    assert judged(fakes, FakeRun("n = 2", outcome=forgot)).message == ""


# --- What a verdict keeps ---


@dataclass(frozen=True)
class Cells(Definition):
    """A definition in a notebook, whose lines are counted by cell."""

    def placed(self, text: str) -> str:
        return text.replace("line 3", "cell 1, line 2")

    def message(self, failure: Failure) -> str:
        return self.placed(failure.message)

    def source(self, line: int) -> str:
        return f"source of {line}\n"


def test_lines_are_those_that_the_player_knows(fakes: Fakes) -> None:
    failed = judged(fakes, FakeRun("n = 2", WRONG), definition=Cells())
    assert failed.message.startswith("cell 1, line 2: ")
    assert (failed.line, failed.source) == (3, "source of 3")
    (note,) = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", WRONG), definition=Cells()).notes
    assert "cell 1, line 2: " in note
    score = Score({}, ("line 3",), 1, ("line 3",), "line 3", ("line 3",), second_step="line 3")
    over = judged(fakes, FakeRun("n = 2", score), definition=Cells())
    for text in (over.message, *over.notes, over.advice, *over.why, over.second_step):
        assert text.endswith("cell 1, line 2")


def test_the_facts_of_the_shown_run_are_kept(fakes: Fakes) -> None:
    score = Score({"time": 8}, (), 3, ("a note",), "advice", ("why",), True, "a pipeline", second_step="more")
    verdict = judged(fakes, FakeRun("n = 2", score), FakeRun("n = 3", RIGHT._replace(notes=("another",))))
    facts = (verdict.notes, verdict.advice, verdict.why, verdict.why_matters, verdict.family, verdict.second_step)
    assert facts == (("a note",), "advice", ("why",), True, "a pipeline", "more")


def test_the_file_of_a_failure_is_kept(fakes: Fakes) -> None:
    assert judged(fakes, FakeRun("n = 2", WRONG._replace(file="other.py"))).file == "other.py"


def test_of_what_a_run_prints_the_first_lines_are_kept(fakes: Fakes) -> None:
    printed = "\n".join(["a\x1b[31m", "b" * 999, *map(str, range(20))])
    outcome = RunOutcome(row={}, printed=printed)
    for score in (RIGHT, WRONG):
        first, second, *_, tenth, last = judged(fakes, FakeRun("n = 2", score, outcome=outcome)).printed
        assert (first, second, tenth) == ("a\\x1b[31m", "b" * 200, "7")
        assert "12" in last, "how many are left out"
    ten = RunOutcome(row={}, printed="\n".join("0123456789"))
    assert judged(fakes, FakeRun("n = 2", outcome=ten)).printed == tuple("0123456789")


@pytest.mark.parametrize("score", [RIGHT, SLOW, WRONG])
def test_the_shown_run_is_kept_on_request(fakes: Fakes, score: Score | Failure) -> None:
    runs = FakeRun("n = 2", score), FakeRun("n = 3", outcome=RunOutcome(row={"kept": "another"}))
    assert judged(fakes, *runs, keep=True).trace == "the run"
    assert judged(fakes, *runs).trace == ""


def test_a_run_that_ended_early_leaves_nothing_to_keep(fakes: Fakes) -> None:
    run = FakeRun("n = 2", outcome=RunOutcome(failure=WRONG))
    assert judged(fakes, run, keep=True).trace == ""


def test_only_the_shown_size_is_run_on_request(fakes: Fakes) -> None:
    verdict = judged(fakes, FakeRun("n = 2"), FakeRun("n = 3", WRONG, hidden=False), only_shown=True)
    assert (stated(verdict), fakes.asked) == (("passed", 3), ["n = 2"])


# --- Teachers' puzzles, saved runs ---


def test_a_teachers_broken_puzzle_is_not_the_players_failure(fakes: Fakes) -> None:
    fakes.breaks = OwnPuzzleError("week3/x.toml: there is no trial")
    verdict = judged(fakes, FakeRun("n = 2"))
    assert (verdict.status, verdict.reason) == ("failed", UNGRADABLE)
    assert str(fakes.breaks) in verdict.message
    assert judged(fakes, definition=Definition(exists=False)).status == "not_attempted"


def test_a_fault_of_the_game_itself_is_raised(fakes: Fakes) -> None:
    fakes.breaks = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        judged(fakes, FakeRun("n = 2"))


def test_a_saved_run_is_judged_at_its_size_only(fakes: Fakes) -> None:
    fakes.runs = FakeRun("n = 2"), FakeRun("n = 3", WRONG)
    assert stated(judge_saved(fake_puzzle("fake_a"), b"\xef\xbb\xbfsaved")) == ("passed", 3)


def test_a_saved_run_that_is_wrong_fails(fakes: Fakes) -> None:
    fakes.runs = (FakeRun("n = 2", WRONG),)
    verdict = judge_saved(fake_puzzle("fake_a"), b"saved")
    assert (verdict.status, verdict.reason) == ("failed", "rule")
    assert WRONG.sentence in verdict.message
    assert verdict.message != WRONG.message, "it says that the run is not correct"


@pytest.mark.parametrize("data", [b"broken", b"\xff", b" " * (MAX_FILE_SIZE + 1)], ids=["broken", "bytes", "large"])
def test_what_is_no_saved_run_fails(fakes: Fakes, data: bytes) -> None:
    fakes.runs = (FakeRun("n = 2"),)
    verdict = judge_saved(fake_puzzle("fake_a"), data)
    assert (verdict.status, verdict.reason, verdict.figures) == ("failed", "rule", {})


def test_a_saved_run_may_have_the_largest_size(fakes: Fakes) -> None:
    fakes.runs = (FakeRun("n = 2"),)
    assert judge_saved(fake_puzzle("fake_a"), b" " * MAX_FILE_SIZE).status == "passed"


# --- Each rule of verdicts as data: when a class has passed, what JSON says, and which rows are read back ---


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


# --- What decides about a figure is one limit: in the rules, in the text of a verdict and in its JSON ---


PAGE = (Path(__file__).parents[2] / "docs" / "teaching.md").read_text(encoding="utf-8")


def cut(number: float, to: str) -> Decimal:
    """A number without the digits beyond a precision, such as 0.1."""
    return Decimal(str(number)).quantize(Decimal(to), ROUND_DOWN)


@given(
    time=st.integers(1, 300) | st.integers(1, 3000).map(lambda tenths: tenths / 10),
    steps=st.integers(0, 30_000).map(lambda hundredths: hundredths / 100),
    near=st.integers(-150, 150),
)
@example(time=33, steps=33.9, near=0)
@example(time=5.5, steps=5.6, near=0)
def test_a_time_decides_at_the_precision_in_which_it_is_stated(time: float, steps: float, near: int) -> None:
    goal = Goal("relay", Size(1, 1, 1), time, 100_000)
    shown = Decimal(goal.time_text.removeprefix("< "))
    for taken in (steps, max(0, round(time + near / 100, 2))):
        meets = cut(taken, "1" if isinstance(time, int) else "0.1") <= Decimal(str(time))
        assert (goal.meets_time(taken), Decimal(str(taken)) < shown) == (meets, meets)


@given(memory=st.integers(1, 10**7), elements=st.integers(0, 10**7))
@example(memory=4_100_000, elements=4_194_304)
@example(memory=4_100_000, elements=4_200_000)
def test_memory_decides_in_hundreds_of_thousands(memory: int, elements: int) -> None:
    goal = Goal("relay", Size(1, 1, 1), 1, memory)
    assert goal.meets_memory(elements) == (elements // 100_000 <= memory // 100_000)


def _number(text: str) -> float:
    """The number in '< 4.2M', '< 6' or '12,288'."""
    found = re.fullmatch(r"(?:< )?([\d.,]+)(M?)(?: for the third star)?", text)
    assert found, text
    return round(float(found[1].replace(",", "")) * (1_000_000 if found[2] else 1), 6)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("slug", ALL)
def test_text_and_json_of_a_verdict_say_the_same_limits(slug: str) -> None:
    track = track_of(slug)
    puzzle = track.puzzle(slug)
    row = Verdict(slug, track.name, "not_attempted", track.words.targets(puzzle)).as_json()
    limits = row["limits"]
    assert limits, "something decides"
    for number, (name, rule) in enumerate(limits.items()):
        ((kind, limit),) = rule.items()
        for value in (limit - 1, limit - 0.01, limit, limit + 0.01, limit + 1):
            measure = track.words.measures(puzzle, {name: value})[number]
            assert measure.value == value
            assert measure.met == {"below": value < limit, "at_most": value <= limit}[kind]
            assert _number(measure.target_text) == limit
    assert len(limits) == len(track.words.measures(puzzle, {}))


def test_every_key_of_the_json_is_documented() -> None:
    described = re.findall(r"^\| (.+?) \|", PAGE.partition("## Results for programs")[2].partition("\n## ")[0], re.M)
    known = {name for cell in described for name in re.findall(r"`(\w+)`", cell)}
    rows = [Verdict(slug, track_of(slug).name, "failed", {}).as_json(why=True) for slug in ALL]
    assert {key for row in rows for key in row} == known


# --- Each rule of a player's progress: what counts as best, what is solved, and which puzzle comes next ---


# --- The best attempt ---


def entry_after(*attempts: tuple[int, dict[str, float]]) -> PuzzleProgress:
    entry = PuzzleProgress()
    for stars, figures in attempts:
        add(entry, a_verdict(stars=stars, figures=figures))
    return entry


def test_an_attempt_that_fails_counts_and_changes_no_best() -> None:
    entry = entry_after((2, {"time": 8}), (0, {}))
    assert (entry.attempts, entry.stars, entry.figures) == (2, 2, {"time": 8})


def test_the_best_attempt_has_the_most_stars_then_the_lowest_figures_in_their_order() -> None:
    for earlier, later, is_better in (
        ((1, {"time": 8}), (2, {"time": 9}), True),
        ((2, {"time": 9}), (1, {"time": 8}), False),
        ((2, {"time": 9, "memory": 1}), (2, {"time": 8, "memory": 2}), True),
        ((2, {"time": 8, "memory": 1}), (2, {"time": 8, "memory": 2}), False),
        ((2, {"time": 8, "memory": 2}), (2, {"time": 8, "memory": 1}), True),
    ):
        entry = entry_after(earlier, later)
        assert (entry.stars, entry.figures) == (later if is_better else earlier)


def test_the_best_of_an_entry_is_a_copy() -> None:
    figures = {"time": 8.0}
    entry = entry_after((2, figures))
    figures["time"] = 1.0
    assert entry.figures == {"time": 8}


def test_the_first_correct_attempt_is_the_best_even_without_stars() -> None:
    assert entry_after((0, {"time": 8})).figures == {"time": 8}


# --- Kept ---


def test_verdicts_are_remembered_with_the_turn(fakes: Fakes) -> None:
    progress.remember_verdicts([a_verdict("fake_b", figures={"time": 8}), a_verdict("fake_c", "failed", 0)])
    progress.remember_verdicts([a_verdict("fake_a", "failed", 0)])
    entries = progress.load()
    assert {slug: (entries[slug].turn, entries[slug].attempts) for slug in fakes.slugs} == {
        "fake_a": (2, 1), "fake_b": (1, 1), "fake_c": (1, 1), "fake_d": (0, 0)}  # fmt: skip
    assert (entries["fake_b"].stars, entries["fake_b"].figures) == (2, {"time": 8})


def test_only_attempts_in_the_players_own_files_are_remembered(fakes: Fakes, tmp_path: Path) -> None:
    graded = Graded(str(tmp_path / "a.py"), (a_verdict("fake_a"), a_verdict("fake_b", "not_attempted", 0)))
    progress.remember(graded)
    assert progress.load()["fake_a"].attempts == 0
    progress.add_own_file(tmp_path / "a.py")
    progress.remember(graded)
    assert (progress.load()["fake_a"].attempts, progress.load()["fake_b"].attempts) == (1, 0)


def test_a_file_is_the_players_own_by_its_real_path(tmp_path: Path, home_of_its_own: Path) -> None:
    mine = tmp_path / "a\nb.py"
    assert not progress.is_own_file(mine)
    for _ in range(2):
        progress.add_own_file(tmp_path / "." / "a\nb.py")
    assert progress.is_own_file(str(mine))
    assert not progress.is_own_file(tmp_path / "b.py")
    assert len((home_of_its_own / "own_files").read_text().split()) == 1, "once"


def test_nothing_attempted_writes_no_file(home_of_its_own: Path) -> None:
    progress.remember_verdicts([])
    assert list(home_of_its_own.iterdir()) == []


def test_only_entries_that_say_something_are_written(home_of_its_own: Path) -> None:
    entries = progress.load()
    assert set(entries) == set(ALL)
    entries["ddp"].hints = 2
    progress.save(entries)
    assert json.loads((home_of_its_own / "progress.json").read_text())["puzzles"] == {
        "ddp": asdict(PuzzleProgress(hints=2))
    }
    assert [path.name for path in home_of_its_own.iterdir()] == ["progress.json"], "no draft is left"
    assert progress.load() == entries


def kept(home: Path, row: Any) -> PuzzleProgress:
    (home / "progress.json").write_text(json.dumps({"version": 2, "puzzles": {"ddp": row}}))
    return progress.load()["ddp"]


def test_fields_and_puzzles_of_later_versions_are_left_out(home_of_its_own: Path) -> None:
    assert kept(home_of_its_own, {"attempts": 3, "medals": 1}) == PuzzleProgress(3)
    (home_of_its_own / "progress.json").write_text('{"puzzles": {"a_later_puzzle": {"attempts": 1}}}')
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


@pytest.mark.parametrize("row", [{"stars": "3"}, {"figures": []}, {"figures": {"time": "8"}}, {"turn": None}, 3, []])
def test_an_entry_that_cannot_be_read_counts_as_empty(home_of_its_own: Path, row: Any) -> None:
    assert kept(home_of_its_own, row) == PuzzleProgress()


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"puzzles": 3}', b"\xff"])
def test_a_file_that_cannot_be_read_counts_as_empty(home_of_its_own: Path, text: bytes) -> None:
    (home_of_its_own / "progress.json").write_bytes(text)
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


def test_the_last_hint_that_was_read_is_kept() -> None:
    for number, last in ((2, 2), (1, 2), (3, 3)):
        progress.remember_hint("ddp", number)
        assert progress.load()["ddp"].hints == last


def test_named_puzzles_are_forgotten_or_all() -> None:
    for slug in ("basic", "ddp", "fsdp"):
        progress.remember_hint(slug, 1)
    progress.forget(["ddp"])
    assert [slug for slug, entry in progress.load().items() if entry.hints] == ["basic", "fsdp"]
    progress.forget()
    assert progress.load() == {slug: PuzzleProgress() for slug in ALL}


# --- What comes next ---


def entries_with(**stars: int) -> dict[str, PuzzleProgress]:
    """The entries of a player with these stars, in the order in which they were graded."""
    entries = {slug: PuzzleProgress() for slug in ALL}
    for turn, (slug, number) in enumerate(stars.items(), 1):
        entries[slug] = PuzzleProgress(1, number, {"time": 8} if number else {}, turn=turn)
    return entries


def test_two_stars_solve_a_puzzle() -> None:
    entries = entries_with(basic=3, ddp=2, fsdp=1, gpipe=0)
    assert solved_slugs(entries) == {"basic", "ddp"}
    assert solved_slugs(entries, stars=3) == {"basic"}
    assert solved_slugs(entries, ["gpipe"]) == {"basic", "ddp", "gpipe"}


def test_the_first_puzzle_is_the_first_of_the_core_path() -> None:
    assert next_slug(entries_with()) == CORE[0]


def test_a_puzzle_that_is_not_solved_is_next_again() -> None:
    assert next_slug(entries_with(basic=3, grad_accum=1)) == "grad_accum"


def test_after_a_core_puzzle_comes_the_next_of_the_path() -> None:
    assert next_slug(entries_with(basic=3)) == "grad_accum"
    assert next_slug(entries_with(basic=3, grad_accum=2)) == "ddp"


def test_what_a_solved_puzzle_builds_on_is_left_out() -> None:
    assert "zero1" not in solved_slugs(entries_with(fsdp=2))
    following = next_slug(entries_with(fsdp=2))
    assert following is not None
    assert CORE.index(following) > CORE.index("fsdp")


def test_the_puzzle_that_was_graded_last_decides() -> None:
    assert next_slug(entries_with(gpipe=2, basic=2)) != next_slug(entries_with(basic=2, gpipe=2))
    assert next_slug(entries_with(basic=2, gpipe=1)) == "gpipe"
    assert next_slug(entries_with(basic=2, gpipe=1), after="basic") == next_slug(entries_with(basic=2))


def test_after_an_extra_puzzle_comes_its_chapter_then_the_path(fakes: Fakes) -> None:
    assert next_slug(entries_with(), "fake_a") == "fake_a"
    assert next_slug(entries_with(fake_a=2)) == "fake_b"
    assert next_slug(entries_with(fake_a=2, fake_b=2)) == CORE[0]
    solved = dict.fromkeys(CORE, 2)
    assert next_slug(entries_with(**solved, fake_a=2, fake_b=2)) == "fake_c", "the path is done: the next of its track"


def test_after_the_path_comes_the_rest_of_the_track_then_any_other() -> None:
    after = CORE[-1]
    solved = dict.fromkeys(CORE, 2)
    following = next_slug(entries_with(**solved), after)
    assert following in track_of(after).slugs
    rest = dict.fromkeys(track_of(after).slugs, 2)
    other = next_slug(entries_with(**{**solved, **rest}), after)
    assert other == next(slug for slug in ALL if slug not in {**solved, **rest})


def test_nothing_comes_after_every_puzzle() -> None:
    assert next_slug(entries_with(**dict.fromkeys(ALL, 2))) is None
    assert next_slug(entries_with(**dict.fromkeys(ALL, 2)), stars=3) is not None


def test_a_puzzle_that_was_passed_now_counts_as_solved() -> None:
    extra = next(slug for slug in ALL if slug not in CORE and chapter_of(slug).slugs[-1] != slug)
    slugs = chapter_of(extra).slugs
    assert next_slug(entries_with(), extra, [extra]) == slugs[slugs.index(extra) + 1]

"""Each rule of the judge, on a track whose runs are written down."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from puzzles.catalog.fields import OwnPuzzleError
from puzzles.failure import Failure
from puzzles.judge.judge import UNGRADABLE, Definition, judge_saved
from puzzles.judge.submission import MAX_FILE_SIZE
from puzzles.judge.verdict import Verdict
from puzzles.sandbox.worker.reading import Sketch
from puzzles.tracks.outcomes import RunOutcome, Score
from tests.support.fake_track import RIGHT, SLOW, TIME, WRONG, FakeRun, Fakes, fake_puzzle, judged


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

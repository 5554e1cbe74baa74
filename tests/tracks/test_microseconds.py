"""Puzzles in microseconds: what is shown, listed and said of a run has their unit."""

from __future__ import annotations

from lib import COSTS, Setting, Size, run
from lib.pipelines.bounds import time_bound
from puzzles.catalog.schedule import PUZZLES
from puzzles.failure import Failure
from puzzles.tracks import track_of
from puzzles.tracks.outcomes import Score, amount, number_text
from puzzles.tracks.schedule.feedback import standing
from puzzles.tracks.schedule.free_game import free_report, summary
from puzzles.tracks.schedule.judge import score_trace
from tests.catalog.lessons.families.buckets import buckets
from tests.support.commands import said
from tests.support.solved import reference_of

PUZZLE = PUZZLES["bucket_size"]
TRACK = track_of("bucket_size")


def scored(*sizes: int) -> Score:
    goal = PUZZLE.goal
    score = score_trace(run(buckets(*sizes), *goal.size, setting=goal.setting).trace, PUZZLE, goal.size)
    assert not isinstance(score, Failure)
    return score


def test_show_asks_for_a_prediction_and_about_has_the_answer() -> None:
    question = " ".join(PUZZLE.statement.split("\n\n")[-1].split())
    answer = " ".join(PUZZLE.answer.split())
    page, about = said("show", "bucket_size"), said("show", "bucket_size", "--about")
    assert question.startswith("Predict first: ")
    assert question in page
    assert answer not in page
    assert f"The prediction {answer}" in about
    assert "2,550 us, < 177M" in page


def test_the_list_of_a_chapter_says_its_unit() -> None:
    assert "Targets: us, " in said("list", "microseconds")
    assert "Targets: timesteps, " in said("list", "memory")


def test_the_verdict_on_a_slow_run_is_in_microseconds() -> None:
    (missed,) = scored(8, 8).missed
    assert ("2,722 us" in missed, "< 2,550" in missed) == (True, True)
    figures = TRACK.words.figures_text(PUZZLE, scored(8, 8).figures)
    assert figures.startswith("2,722 us (target < 2,550), 167,772,160 elements")


def test_the_words_after_a_pass_are_in_microseconds() -> None:
    figures = scored(4, 4, 4, 4).figures
    assert "2,441 us, 167,772,160 elements" in standing(PUZZLE, figures, 2, PUZZLE.goal.family)
    assert TRACK.words.margin(PUZZLE, figures).startswith("62 us, ")


def test_a_free_run_and_its_bounds_are_in_microseconds() -> None:
    size, setting = Size(2, 1, 1), Setting("hopper_host")
    trace = run(reference_of("basic"), *size, setting=setting).trace
    lines = summary(trace, free_report(trace, "mine", size, setting))
    assert "over at 4,642;" in lines[0]
    (time,) = [line for line in lines if line.startswith("Time: ")]
    assert f"needs at least {number_text(time_bound(size, setting).least)} us (" in time
    assert not any("step" in line for line in lines)


def test_amounts_of_microseconds() -> None:
    assert (amount(1, "us"), amount(2.0, "us"), amount(1.0, "timesteps")) == ("1 us", "2 us", "1 timestep")
    assert COSTS["hopper_host"].took(21_534.0) == "21,534 us"
    assert COSTS["classic"].took(19.9) == "19.9 timesteps"

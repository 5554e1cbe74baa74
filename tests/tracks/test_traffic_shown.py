"""Traffic, drift and the steady peak beside their targets: in tables, in JSON, in files and among records."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from lib import Goal, Record, Size
from lib.ledger.goal import figures_text
from puzzles.catalog.schedule import PUZZLES
from puzzles.judge.verdict import Graded, Scoring, Verdict
from puzzles.screens.terminal import report
from puzzles.teaching.export import table
from puzzles.tracks import track_of
from puzzles.tracks.schedule.feedback import standing
from puzzles.tracks.schedule.words import measures

GOAL = Goal("zero1", Size(4, 4, 4), 12, 2_300_000, traffic=1_500_000, drift=4, steady=True, family="data parallelism")
CLASSIC = replace(GOAL, drift=None, decides="star")
FIGURES = {"timesteps": 12.1, "peak_memory": 2_097_152, "traffic": 1_572_864, "drift": 3}
LASTING = {**FIGURES, "lasting_peak": 2_359_296}


def test_targets_are_data_and_words() -> None:
    track, puzzle = track_of("zero1"), replace(PUZZLES["zero1"], goal=GOAL)
    assert track.words.targets(puzzle) == {"time": 12, "memory": 2_300_000, "traffic": 1_500_000, "drift": 4}
    assert track.words.limits_json(puzzle) == {
        "timesteps": {"below": 13},
        "peak_memory": {"below": 2_400_000},
        "traffic": {"below": 1_600_000},
        "drift": {"at_most": 4},
    }
    limits = track.words.limits(puzzle)
    assert re.findall(r"< [\d.]+M?|at most \d", limits) == ["< 13", "< 2.4M", "< 1.6M", "at most 4"]


@pytest.mark.parametrize(
    ("goal", "figures", "texts"),
    [
        (GOAL, FIGURES, ["12.1 timesteps (target < 13)", "2,097,152 elements (target < 2.4M)",
                         "1,572,864 elements sent (target < 1.6M)", "3 of 4 updates between two averages"]),
        (GOAL, LASTING, ["12.1 timesteps (target < 13)", "2,359,296 elements in a second step (target < 2.4M)",
                         "1,572,864 elements sent (target < 1.6M)", "3 of 4 updates between two averages"]),
        (CLASSIC, LASTING, ["12.1 timesteps (target < 13)", "2,097,152 elements (target < 2.4M)",
                            "1,572,864 elements sent (target < 1.6M for the third star)",
                            "2,359,296 elements in a second step (target < 2.4M for the third star)"]),
        (replace(GOAL, traffic=None, drift=None, steady=False), LASTING,
         ["12.1 timesteps (target < 13)", "2,097,152 elements (target < 2.4M)"]),
    ],
)  # fmt: skip
def test_each_figure_is_beside_its_target(goal: Goal, figures: dict[str, float], texts: list[str]) -> None:
    assert [measure.text() for measure in measures(goal, figures)] == texts


def figures_in(text: str) -> list[str]:
    return re.findall(r"\d[\d,.]*\d", text)


def test_a_pass_may_miss_what_decides_the_third_star_only() -> None:
    puzzle = replace(PUZZLES["zero1"], goal=CLASSIC)
    over = {**FIGURES, "traffic": 1_900_000}
    track = track_of("zero1")
    assert figures_in(track.words.margin(puzzle, FIGURES)) == ["0.9", "302,848", "27,136"]
    assert figures_in(track.words.margin(puzzle, over)) == ["0.9", "302,848"]
    assert [measure.met for measure in measures(CLASSIC, over)] == [True, True, False]


def verdict(slug: str, figures: dict[str, float]) -> Verdict:
    return Verdict(slug, "schedule", "passed", {}, stars=2, figures=figures)


def shown(columns: int, *verdicts: Verdict) -> list[str]:
    console = Console(width=columns, file=io.StringIO())
    report(console, [Graded("mine.py", verdicts)])
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_on_a_narrow_terminal_a_target_is_below_its_figure() -> None:
    made = verdict("sequence_parallel", {"timesteps": 13.05, "peak_memory": 4_718_592, "traffic": 29_097_984})
    (wide,) = [line for line in shown(120, made) if line.startswith(" sequence_parallel")]
    narrow = shown(76, made)
    at = next(i for i, line in enumerate(narrow) if line.startswith(" sequence_parallel"))
    assert "13.05 (< 14)" in wide
    assert "29,097,984" in wide
    assert narrow[at].split()[2:] == ["13.05", "4,718,592", "29,097,984", "passed"]
    assert narrow[at + 1].split()[:2] == ["(<", "14)"]


def test_a_run_on_one_rank_has_no_traffic() -> None:
    (line,) = [line for line in shown(120, verdict("basic", {"timesteps": 16.5, "peak_memory": 2_621_440}))
               if line.startswith(" basic")]  # fmt: skip
    assert line.split()[-2:] == ["-", "passed"]


def test_csv_has_the_figures() -> None:
    graded = [Graded("mine.py", (verdict("zero1", FIGURES),))]
    scoring = Scoring()
    (row,) = csv.DictReader(io.StringIO(table(graded, scoring)))
    assert (row["timesteps"], row["peak_memory"], row["traffic"]) == ("12.1", "2097152", "1572864")


def test_the_tightest_targets_have_the_traffic() -> None:
    tightest = track_of("zero1").words.tightest
    assert tightest(FIGURES) == {"time": 12, "memory": 2_000_000, "traffic": 1_500_000}
    assert "traffic" not in tightest({**FIGURES, "traffic": 0})


# --- Records ---

KNOWN = Record(12.1, 1_966_080, "records/a.py", "data parallelism", 1_572_864)
GREEDY = Record(11.0, 1_900_000, "records/b.py", "data parallelism", 2_359_296)


def test_a_record_that_sends_too_much_is_no_rival() -> None:
    puzzle = replace(PUZZLES["zero1"], goal=replace(GOAL, records=(KNOWN, GREEDY)))
    assert puzzle.goal.rivals("data parallelism") == (KNOWN,)
    said = standing(puzzle, FIGURES, 2, "data parallelism")
    assert "12.1 timesteps, 1,966,080" in said
    assert standing(puzzle, {**FIGURES, "traffic": 1_300_000}, 3, "data parallelism").startswith("Three stars")


def test_a_record_is_beaten_by_less_traffic_alone() -> None:
    assert not KNOWN.dominates(12.1, 1_966_080, 1_572_864)
    assert KNOWN.dominates(12.1, 1_966_080, 1_572_865)


def test_figures_in_words() -> None:
    assert figures_text(16.5, 2_621_440, 0) == figures_text(16.5, 2_621_440)
    assert figures_in(figures_text(16.5, 2_621_440)) == ["16.5", "2,621,440"]

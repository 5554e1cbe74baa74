"""Two runs side by side, and a puzzle's schedules on one plane."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise

import pytest

from docs.generate import gallery
from drawing import Attempt, draw_compare, draw_pareto, svg
from drawing.palette import ALARM, SOFT, STROKE
from drawing.plans import Spot, describe_spot, plane_of
from drawing.timeline import difference
from lib import Goal, Model, Record, Report, Size, referee, run
from puzzles.catalog.schedule import PUZZLES
from tests.screens.texts import approved
from tests.support.svg import SVG, root, texts, tips

GOAL = PUZZLES["gpipe"].goal


def report(slug: str, goal: Goal | None = None) -> Report:
    return referee(gallery.solved(slug).trace, goal)


# --- Side by side ---


def test_a_comparison_names_the_difference() -> None:
    picture = draw_compare(gallery.solved("pipeline"), gallery.solved("gpipe"), "Two pipelines")
    title, told, mine, *rest = texts(picture)
    assert (title, mine) == ("Two pipelines", "yours")
    approved("compare", "a comparison names the difference", told)
    assert "reference" in rest
    assert told in picture.description


def test_a_comparison_says_who_sends_more() -> None:
    picture = draw_compare(gallery.solved("wsdp"), gallery.solved("fsdp"))
    assert "sends 1,179,648 elements more" in texts(picture)[1]
    approved("compare", "a comparison says who sends more", texts(picture), "traffic: elements that each")
    alone = difference(report("basic"), report("basic"), ("a", "b"))
    assert "sends" not in alone


def test_equal_runs_are_as_good() -> None:
    names = ("a", "b")
    same = difference(report("ddp"), report("ddp"), names)
    approved("compare", "equal runs are as good", same)


def test_both_are_on_one_time_axis_and_one_scale_of_memory() -> None:
    picture = draw_compare(gallery.solved("pipeline"), gallery.solved("gpipe"))
    written = texts(picture)
    assert written.count("65") == 2  # gpipe has its axis up to pipeline's end
    approved("compare", "both are on one time axis and one scale of memory", written, "memory in elements, all")
    last = [tip for tip in tips(picture) if "update layer 1," in tip]
    edges = [
        float(re.match(r"M([\d.]+)", node.get("d", ""))[1])  # type: ignore[index]
        for node in root(picture).iter(f"{SVG}path")
        if node.findtext(f"{SVG}title") in last
    ]
    assert edges[0] > 1.8 * edges[1]


def test_runs_of_different_ranks_can_be_compared() -> None:
    def nothing(model: Model) -> None:
        """Idle."""

    picture = draw_compare(run(nothing, 1, 1, 1), run(nothing, 1, 1, 12), critical=True, dark=True)
    assert texts(picture).count("rank 0") == 4


# --- Pareto ---


def test_attempts_and_records_are_told_apart() -> None:
    records = (Record(32.9, 2_490_368, "one forward, one backward"), Record(22.0, 2_359_296))
    goal = replace(GOAL, records=records, family="")
    picture = draw_pareto(goal, [Attempt("mine.py", report("gpipe", goal))], "GPipe")
    approved(
        "compare",
        "attempts and records are told apart",
        sorted(tip for tip in tips(picture) if not tip.startswith("meets")),
    )
    marks = [node.get("fill") for node in root(picture).iter(f"{SVG}path") if len(node)]
    assert marks.count(ALARM) == 1
    mine = "mine.py: 33.3 timesteps, 4,194,304 elements, 1,048,576 elements sent, meets the target"
    assert mine in picture.description
    assert {"record", "attempt", "mine.py", "target met"} <= set(texts(picture))


def test_records_of_another_kind_are_told_apart_and_only_the_best_are_shown() -> None:
    records = (
        Record(32.9, 2_490_368, "own", "a pipeline"),
        Record(24.0, 2_359_296, "best", "sharded data parallelism"),
        Record(24.0, 2_400_000, "beaten", "sharded data parallelism"),
    )
    goal = replace(GOAL, records=records, family="a pipeline")
    picture = draw_pareto(goal, [Attempt("mine.py", report("gpipe", goal))], "GPipe")
    approved(
        "compare",
        "records of another kind are told apart and only the best are shown",
        sorted(tip for tip in tips(picture) if not tip.startswith("meets")),
    )
    assert {"record", "record of another kind", "attempt"} <= set(texts(picture))
    approved(
        "compare",
        "records of another kind are told apart and only the best are shown, 2",
        picture.description,
        "record of another kind,",
    )


def test_a_record_is_named_after_its_file_and_variant() -> None:
    records = (
        Record(30.0, 2_600_000, "solutions/records/gpipe_laps.py", "a pipeline"),
        Record(31.0, 2_400_000, "solutions/records/gpipe_laps.py: three_batches", "a pipeline"),
    )
    picture = draw_pareto(replace(GOAL, records=records, family="a pipeline"))
    assert [tip.split(": ")[1].partition(" timesteps")[0] for tip in tips(picture) if tip.startswith("record")] == [
        "laps, 30",
        "laps, three batches, 31",
    ]


@pytest.mark.slow
def test_the_target_box_holds_what_meets_the_target() -> None:
    picture = draw_pareto(GOAL, [Attempt("mine.py", report("gpipe"))])
    (box,) = [tip for tip in tips(picture) if tip.startswith("meets both targets")]
    assert ("< 34 timesteps and" in box, "< 4.2M elements" in box) == (True, True)
    border = [node for node in root(picture).iter(f"{SVG}path") if node.get("stroke-dasharray")]
    assert [node.get("stroke") for node in border] == [STROKE, SOFT]  # the target's box, and the open front


@pytest.mark.slow
def test_what_failed_is_named_and_has_no_place() -> None:
    wrong = Attempt("wrong.py", report("fsdp", GOAL))
    picture = draw_pareto(GOAL, [wrong])
    assert "wrong.py is not correct" in texts(picture)
    assert [tip for tip in tips(picture) if "wrong.py" in tip] == []


def test_an_untried_puzzle_shows_only_its_target() -> None:
    asked = "target: < 2 timesteps, < 0.2M elements"
    assert texts(draw_pareto(Goal("x", Size(1, 1, 1), 1, 100_000)))[:2] == ["x", asked]
    sending = Goal("x", Size(1, 1, 2), 1, 100_000, traffic=300_000, decides="star")
    assert any(line.startswith(f"{asked}; sent < 0.4M") for line in texts(draw_pareto(sending)))


def test_hostile_names_are_text() -> None:
    picture = draw_pareto(GOAL, [Attempt('<script>"', report("gpipe"))], "<b>")
    assert "<script" not in svg(picture)
    assert '<script>"' in texts(picture)


@pytest.mark.slow
def test_names_close_together_do_not_cover_each_other() -> None:
    picture = draw_pareto(GOAL, [Attempt(f"{i}.py", report("gpipe")) for i in range(4)])
    drawn = root(picture).iter(f"{SVG}text")
    nodes = [node for node in drawn if (node.text or "").endswith(".py") and node.get("fill") != "none"]  # no halos
    heights = sorted(float(node.get("y", 0)) for node in nodes)
    assert all(high - low >= 12 for low, high in pairwise(heights))


def test_everything_shown_is_within_the_plane() -> None:
    plane = plane_of(GOAL, [])
    assert plane.x(GOAL.time) < 720
    assert plane.y(GOAL.memory) > 0


def test_an_attempt_that_sends_too_much_misses_the_target() -> None:
    goal = Goal("x", Size(4, 4, 4), 12, 2_300_000, traffic=1_500_000)
    sent = Spot(12.1, 2_097_152, "mine", "attempt", 2_359_296)
    assert describe_spot(sent, goal).endswith("2,097,152 elements, 2,359,296 elements sent, misses the target")
    assert describe_spot(sent._replace(traffic=1_572_864), goal).endswith("meets the target")
    assert describe_spot(sent, replace(goal, decides="star")).endswith("meets the target")

"""Timelines beyond their marks, comparisons, and deadlocks."""

import json
import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

import drawing
from docs.generate import gallery
from drawing import Attempt, TimedRun, Timeline, draw, draw_compare, draw_pareto, draw_steps, svg, text
from drawing.files import viewer_json
from drawing.html import run_data
from drawing.palette import (
    ALARM,
    CALLS,
    CRITICAL,
    INK,
    KINDS,
    PAPER,
    SOFT,
    STROKE,
    TARGET,
    dark_variant,
    layer_colour,
    layer_tint,
    text_on,
)
from drawing.plans import Spot, describe_spot, plane_of
from drawing.run_text import describe_gap, describe_run, text_of
from drawing.scene import scene_from, scene_of, sent_by_kind
from drawing.timeline import difference, summary_lines
from lib import DeadlockError, Goal, Model, Record, Report, Setting, Size, Trace, referee, run
from lib.planning import Job, Split, gpu, plan, transformer
from puzzles.catalog.schedule import PUZZLES
from tests.drawing.test_palette import contrast
from tests.screens.texts import approved
from tests.support import CLASSICS
from tests.support.refusals import Refused
from tests.support.svg import SVG, paths, root, texts, tips


def picture(slug: str, **options: Any) -> Timeline:
    return draw(gallery.solved(slug), **options)


def gaps_of(slug: str, rank: int) -> list[str]:
    scene = scene_of(gallery.solved(slug).trace)
    lane = scene.lanes[rank]
    return [describe_gap(gap, f"rank {lane.rank}", scene) for gap in lane.gaps]


def test_a_gap_says_what_its_rank_waited_for() -> None:
    approved("timeline", "a gap says what its rank waited for", gaps_of("pipeline", 1))
    approved("timeline", "a gap says what its rank waited for, 2", gaps_of("pipeline_fsdp", 0)[1])


@pytest.mark.sampled(3)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_every_gap_of_a_legal_run_has_a_reason_and_shows_it(classic: Any) -> None:
    scene = scene_of(run(classic.solution, *classic.size).trace)
    told = [describe_gap(gap, f"rank {lane.rank}", scene) for lane in scene.lanes for gap in lane.gaps]
    assert all(" waits for rank " in words or " has nothing left" in words for words in told)
    assert sorted(told) == sorted(tip for tip in tips(picture(classic.slug)) if " idle, t=" in tip)


def test_a_wide_gap_shows_its_reason_without_hovering() -> None:
    written = texts(picture("pipeline"))
    assert {"waits for rank 0", "waits for rank 3", "done"} <= set(written)


def test_the_rest_of_a_run_that_failed_is_not_called_done() -> None:
    async def wait_for_ever(model: Model) -> None:
        if model.rank == 1:
            weight, _ = model.load_weights(0)
            model.forward(0, model.get_activation([0]), weight)
        else:
            await model.receive(1)

    line = wait_for_ever.__code__.co_firstlineno + 5
    assert f"in receive(1) on line {line}" in "\n".join(tips(draw(run(wait_for_ever, 1, 1, 2))))


# --- The critical path ---


def test_the_critical_path_is_drawn_when_asked_for() -> None:
    plain, critical = picture("gpipe"), picture("gpipe", critical=True)
    assert paths(plain, "stroke", CRITICAL) == []
    path, sample = paths(critical, "stroke", CRITICAL)
    assert path.get("d", "").startswith("M74 ")
    assert "critical path" in texts(critical)
    assert sample.get("d", "").endswith("h24")


def test_the_critical_path_of_nothing_is_nothing() -> None:
    assert len(paths(draw(run(lambda model: None), critical=True), "stroke", CRITICAL)) == 1  # in the legend


# --- Memory by kind ---


def test_memory_is_split_by_kind() -> None:
    drawn = picture("gpipe")
    for colour in KINDS.values():
        assert len(paths(drawn, "fill", colour)) == 4 + 1  # ranks and legend
    approved("timeline", "memory is split by kind", tips(drawn), "rank 1: gradients, at")
    assert {"weights", "optimizer states", "activations", "gradients"} <= set(texts(drawn))


def test_what_a_dictionary_does_not_hold_is_hatched() -> None:
    drawn = draw(run(gallery.hidden_memory, 3, 2, 1))
    assert "rank 0: held only in a variable: weights, at most 786,432 elements" in tips(drawn)
    assert "held only in a variable" in texts(drawn)
    assert not any("only in a variable" in tip for tip in [*tips(picture("gpipe")), *texts(picture("gpipe"))])


def test_the_target_is_a_dashed_line_for_each_rank() -> None:
    goal = PUZZLES["gpipe"].goal
    drawn = picture("gpipe", goal=goal)
    line, of_traffic = paths(drawn, "stroke", TARGET)
    assert [one.get("d", "").count("M") for one in (line, of_traffic)] == [4, 1]
    approved("timeline", "the target is a dashed line for each rank", texts(drawn), "dashed: target < 2.1M")
    assert line.get("stroke-dasharray")
    assert "dashed: target < 4.2M" in texts(drawn)
    approved("timeline", "the target is a dashed line for each rank, 2", texts(drawn)[1], "33.3 steps (target <")
    assert paths(picture("gpipe"), "stroke", TARGET) == []


def test_what_meets_the_target_stays_below_its_line() -> None:
    """33.3 of 34 steps and 4,194,304 of 4.2M elements: the peak's mark is below the dashed line of its rank."""
    drawn = picture("gpipe", goal=PUZZLES["gpipe"].goal)
    line, _ = paths(drawn, "stroke", TARGET)
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)", line.get("d", ""))]
    (mark,) = paths(drawn, "fill", ALARM)
    top = float(re.findall(r"M[\d.]+ ([\d.]+)", mark.get("d", ""))[0]) + 4  # the diamond's upper corner is 4 above
    assert 0 <= round(top - heights[1], 1) < 1, "0.05 pixels, before rounding"


def test_a_target_far_above_does_not_flatten_the_picture() -> None:
    goal = Goal("x", Size(8, 4, 4), 33, 10**9)
    assert paths(picture("gpipe", goal=goal), "stroke", TARGET) == []


def test_with_a_goal_the_rules_of_a_puzzle_hold() -> None:
    drawn = picture("gpipe", goal=PUZZLES["fsdp"].goal)
    approved("timeline", "with a goal the rules of a puzzle hold", drawn.description, "the puzzle fsdp is")


# --- For everyone ---


def test_the_text_alternative_describes_each_rank() -> None:
    described = root(picture("gpipe")).findtext(f"{SVG}desc", "")
    approved(
        "timeline",
        "the text alternative describes each rank",
        described.replace("4 receive, 8 forward", "8 forward, 4 receive"),
        "Rank 3: 8 forward,",
    )
    approved("timeline", "the text alternative describes each rank, 2", described, "idle from t=8.8 to")
    many = root(draw(run(gallery.gathered, 1, 1, 16))).findtext(f"{SVG}desc", "")
    assert "And 8 more ranks." in many


@pytest.mark.slow
def test_a_notebook_gets_the_picture_and_a_text() -> None:
    drawn = picture("ddp", title="Data parallel")
    bundle = drawn._repr_mimebundle_()
    assert bundle["text/html"] == svg(drawn)
    assert bundle["text/plain"].startswith("Data parallel\nData parallelism\n5.1 steps")
    assert "rank 3 F0b3" in bundle["text/plain"]
    assert set(gallery.pareto()._repr_mimebundle_()) == {"text/html", "text/plain"}


def test_dark_is_the_same_picture_in_other_colours() -> None:
    light, night = svg(picture("fsdp")), svg(picture("fsdp", dark=True))
    assert re.sub("#[0-9a-f]{3,6}", "", light) == re.sub("#[0-9a-f]{3,6}", "", night)
    assert 'fill="#fff"' not in night.split("\n")[1]


def test_text_can_be_read_on_every_layer_in_light_and_dark() -> None:
    for layer in range(12):
        for fill in (layer_colour(layer, 12), layer_tint(layer, 12)):
            assert contrast(fill, text_on(fill)) > 3.5
            assert contrast(dark_variant(fill), dark_variant(text_on(fill))) > 3
    assert contrast(dark_variant(PAPER), dark_variant(INK)) > 10


def test_a_picture_says_what_schedule_it_is() -> None:
    """Below a title, unless the title says it; in the title of a run without one; and not of a run that failed."""
    gpipe = next(classic for classic in CLASSICS if classic.slug == "gpipe")
    trace = run(gpipe.solution, *gpipe.size).trace
    titled, named, untitled = (svg(draw(trace, title)) for title in ("Mine", "The GPipe schedule", ""))
    assert ">GPipe<" in titled
    assert ">GPipe<" not in named
    assert "<title>GPipe: 4 ranks," in untitled
    assert text(trace, "Mine").startswith("Mine\nGPipe\n33.3 steps")
    cut = Trace(trace.size, tuple(ops[:20] for ops in trace.ranks))
    assert "GPipe" not in svg(draw(cut, "Mine"))


def test_of_a_schedule_that_is_like_another_the_difference_is_wrapped() -> None:
    from solutions.records.gpipe_laps import gpipe

    picture = svg(draw(run(gpipe, 8, 4, 4).trace, "Laps"))
    approved(
        "timeline",
        "of a schedule that is like another the difference is wrapped",
        picture,
        "Like interleaved 1F1B, but",
    )


# --- Traffic ---


def bars(slug: str) -> list[dict[str, int]]:
    scene = scene_of(gallery.solved(slug).trace)
    return [sent_by_kind(scene, rank) for rank in range(len(scene.lanes))]


@pytest.mark.slow
def test_a_bar_for_each_rank_has_the_kinds_of_calls_and_their_elements() -> None:
    assert bars("fsdp") == [{"allgather": 2_359_296, "scatterreduce": 1_179_648}] * 4
    assert bars("gpipe") == [{"pass_to": sent} for sent in (524_288, 1_048_576, 1_048_576, 524_288)]
    for slug in ("fsdp", "gpipe", "pipeline_fsdp"):
        report = referee(gallery.solved(slug).trace)
        assert max(sum(bar.values()) for bar in bars(slug)) == report.traffic
        assert sum(sum(bar.values()) for bar in bars(slug)) == report.traffic_total
    drawn = picture("fsdp")
    assert [
        tip.split()[3] for tip in tips(drawn) if tip.startswith("rank 2: reduce-scatter") and tip.endswith(" sent")
    ] == ["1,179,648"]
    assert texts(drawn).count("all-gather 2,359,296") == 4
    assert texts(drawn).count("sent: all-gather") == 1
    assert "sends 3,538,944 elements" in drawn.description


def test_bars_are_as_long_as_what_they_stand_for() -> None:
    drawn = picture("fsdp")
    lengths = [
        sorted(float(re.findall(r"h([\d.]+)", one.get("d", ""))[0]) for one in paths(drawn, "fill", CALLS[kind]))[-4:]
        for kind in ("allgather", "scatterreduce")
    ]
    assert [long / short for long, short in zip(*lengths, strict=True)] == pytest.approx([2.0] * 4, rel=1e-3)


def test_a_page_has_the_same_bars() -> None:
    data = run_data(scene_from(gallery.solved("fsdp").trace, PUZZLES["fsdp"].goal))
    sent = data["traffic"]
    used = [[(kind, n) for kind, n in zip(sent["names"], rank, strict=True) if n] for rank in sent["ranks"]]
    assert used == [[("all-gather", 2_359_296), ("reduce-scatter", 1_179_648)]] * 4
    assert (sent["most"], sent["target"]) == (3_600_000, 3_600_000)
    fills = [*data["memory"]["fills"], *sent["fills"]]
    shown = {item["words"]: fills[item["kind"]][0] for item in data["legend"] if "kind" in item}
    assert shown["weights"] == KINDS["weights"]
    assert shown["sent: reduce-scatter"] == CALLS["scatterreduce"]
    assert "sent: messages" not in shown


def test_one_rank_has_no_bar() -> None:
    assert run_data(scene_from(gallery.solved("basic")))["traffic"]["most"] == 0
    assert not any("traffic" in words for words in texts(picture("basic")))


def test_the_page_marks_the_start_of_the_last_event_where_a_game_has_a_target_for_it() -> None:
    solved = gallery.solved("gpipe")
    data = run_data(scene_from(solved.trace, PUZZLES["gpipe"].goal))
    assert data["timesteps"] == [max(data["start"]), "33.3 timesteps"]
    assert data["timesteps"][0] < data["end"] == 33.8
    assert run_data(scene_from(solved.trace))["timesteps"] is None


def test_figures_are_not_broken_apart() -> None:
    lines = summary_lines(referee(gallery.solved("fsdp").trace, PUZZLES["fsdp"].goal), 976)
    assert len(lines) == 2
    assert lines[0].endswith(" · 3,538,944 sent (target < 3.6M for the third star)")
    approved("timeline", "figures are not broken apart", lines[1])


# --- Plans ---


def test_a_plan_is_drawn_as_one_replica_without_memory_and_traffic() -> None:
    """They are those of a replica that shares nothing with the others."""
    found = plan(Job(transformer("llama-3-8b", layers=4), gpu("h100"), 16, 32, 4096), Split(dp=8, pp=2, zero=3))
    scene = scene_from(TimedRun(found.trace))
    assert len(scene.lanes) == 2
    assert scene.end == pytest.approx(1000 * found.seconds)
    assert (scene.report.peak.memory, scene.report.traffic) == (0, 0)
    assert not any(lane.memory for lane in scene.lanes)
    data = run_data(scene)
    assert (data["memory"]["most"], data["traffic"]["most"]) == (0, 0)
    events = json.loads(viewer_json(scene))["traceEvents"]
    assert {event["pid"] for event in events} == {1}, "there are no counters"
    for words in (text_of(scene), describe_run(scene), svg(draw_steps(found))):
        assert "elements" not in words


# === Deadlocks ===


async def in_a_cycle(model: Model) -> None:
    if model.rank < 3:
        await model.receive((model.rank + 1) % 3)


async def without_group(model: Model) -> None:
    weight, _ = model.load_weights(0, model.index("tp"), 2)
    if model.index("pp"):
        await model.receive(0)
    else:
        await model.allgather(weight, 0)


def test_ranks_that_wait_for_each_other_are_named_in_their_cycle() -> None:
    error = run(in_a_cycle, 1, 4, 4).error
    Refused("nobody can move", cycle=[(0, 1), (1, 2), (2, 0)], absent={3: "has returned"}).require(error)


def test_a_chain_is_no_cycle() -> None:
    async def chain(model: Model) -> None:
        if model.rank:
            await model.receive(model.rank - 1)

    Refused("nobody can move", cycle=[]).require(run(chain, 1, 4, 4).error)


def test_a_forgotten_group_is_shown_with_its_call() -> None:
    said = str(run(without_group, 1, 1, 4, setting=Setting("classic", mesh={"pp": 2, "tp": 2})).error)
    assert "name a group: allgather(layer=0)" in said
    assert "name a group" not in str(run(in_a_cycle, 1, 4, 4).error), "there are no groups"


def test_the_picture_says_in_its_title_and_in_lines_who_is_stuck_where() -> None:
    outcome = run(in_a_cycle, 1, 4, 4)
    lines = drawing.text(outcome, "Mine").splitlines()
    assert lines[0] == "Deadlock: Mine"
    assert any("rank 1 waits in receive(2) on line " in line for line in lines)
    assert any(line.startswith("they wait for each other in a cycle: ") for line in lines)
    source = drawing.svg(drawing.draw(outcome, "Mine"))
    assert "Deadlock: Mine" in source
    assert "they wait for each other in a cycle: " in source


def test_each_row_shows_where_its_rank_is_stuck_and_arrows_show_the_cycle() -> None:
    timeline = drawing.draw(run(in_a_cycle, 1, 4, 4), "Mine")
    stuck = {lane.rank: gap.stuck for lane in timeline.scene.lanes for gap in lane.gaps if gap.stuck}
    assert [stuck[rank].partition(" on line ")[0] for rank in sorted(stuck)] == [f"in receive({r})" for r in (1, 2, 0)]
    source = drawing.svg(timeline)
    assert source.count("stuck in receive(") >= 3
    assert "has nothing left to do" in source, "rank 3 has returned"


def test_ranks_that_are_named_together_are_all_stuck() -> None:
    async def nobody_sends(model: Model) -> None:
        if model.rank != 3:
            await model.receive()

    outcome = run(nobody_sends, 1, 6, 6)
    Refused("nobody can move", cycle=[]).require(outcome.error)
    gaps = [gap for lane in scene_from(outcome).lanes for gap in lane.gaps]
    assert [bool(gap.stuck) for gap in gaps] == [True, True, True, False, True, True]


def test_the_trace_alone_shows_an_unfinished_run() -> None:
    assert drawing.text(run(in_a_cycle, 1, 4, 4).trace, "Mine").splitlines()[0] == "Mine"


def test_an_ended_run_is_drawn_as_the_outcome_is() -> None:
    outcome = run(in_a_cycle, 1, 4, 4)
    assert isinstance(outcome.error, DeadlockError)
    assert drawing.text(drawing.EndedRun(outcome.trace, outcome.error)) == drawing.text(outcome)


# === Two runs side by side, and schedules on one plane ===


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

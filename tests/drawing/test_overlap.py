"""Pictures of what the classic puzzles do not have: communication beside computation, groups, tags, recomputation."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import pytest

import drawing
from drawing.html import run_data
from drawing.run_text import describe, describe_gap
from drawing.scene import Scene, scene_of
from lib import COLLECTIVES, COSTS, Costs, Model, Setting, Trace, run
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.replicas import buckets
from tests.screens.texts import approved
from tests.support.schedules.tiers import offload
from tests.support.step_costs import STEP_COSTS


@pytest.fixture(scope="module")
def prefetched() -> Trace:
    return run(fsdp_prefetch, 3, 2, 2, setting=Setting(STEP_COSTS["overlap"])).trace


@pytest.fixture(scope="module")
def scene(prefetched: Trace) -> Scene:
    return scene_of(prefetched)


def test_collectives_have_a_stream_of_their_own(scene: Scene) -> None:
    assert scene.report.error is None
    assert scene.streams == ("compute", "network")
    for lane in scene.lanes:
        assert {mark.op.name for mark in lane.on(1)} == {"allgather", "scatterreduce"}
        for stream in (0, 1):
            marks = lane.on(stream)
            assert all(a.end <= b.start for a, b in itertools.pairwise(marks))


def test_a_call_is_shown_from_when_it_is_made_until_it_is_awaited(scene: Scene, prefetched: Trace) -> None:
    awaits = {(r, op.args[0]): op.end for r, ops in enumerate(prefetched.ranks) for op in ops if op.name == "await"}
    calls = [mark for mark in scene.marks if mark.stream]
    assert len(calls) == len(awaits)
    for mark in calls:
        assert mark.called is not None
        assert mark.called <= mark.start
        assert mark.awaited is not None
        assert mark.awaited >= mark.end
        assert mark.awaited == awaits[mark.rank, mark.place] / 10
        assert f"called at t={mark.called:g}, awaited at t={mark.awaited:g}" in describe(mark)


def test_computation_is_idle_while_it_awaits_a_call(scene: Scene) -> None:
    first = scene.lanes[0].gaps[0]
    assert (first.start, first.end) == (0.0, 0.5)
    assert first.awaited is not None
    assert first.awaited.op.name == "allgather"
    assert first.awaited.op.layer == 0
    approved(
        "overlap",
        "computation is idle while it awaits a call",
        describe_gap(first, "rank 0", scene),
        "awaits its all-gather layer",
    )


def test_memory_is_shown_at_the_clock_of_its_rank(scene: Scene) -> None:
    """Each figure of the report is there, in its place: a call is sampled when it is made, not when it starts."""
    for lane in scene.lanes:
        assert [span.memory for span in lane.memory] == list(scene.report.ranks[lane.rank].memory)
        assert all(a.end == b.start for a, b in zip(lane.memory, lane.memory[1:]))
        assert all(span.end >= span.start for span in lane.memory)
    peak = scene.report.peak
    spans = [span for span in scene.lanes[peak.rank].memory if span.memory == peak.memory]
    assert any(span.start <= peak.time <= span.end for span in spans)


def test_text_has_a_row_for_each_stream(prefetched: Trace) -> None:
    rows = drawing.text(prefetched).splitlines()
    at = next(i for i, row in enumerate(rows) if row.startswith("rank 0"))
    assert rows[at + 1].startswith("network")
    assert set("<>") <= set(rows[at + 1])
    assert not set("<>") & set(rows[at])


def test_pages_and_viewers_know_the_streams(scene: Scene, prefetched: Trace, tmp_path: Path) -> None:
    data = run_data(scene)
    assert data["streams"] == ("compute", "network")
    network = [i for i, stream in enumerate(data["stream"]) if stream]
    assert network
    assert all(data["called"][i] is not None for i in network)
    drawing.save(prefetched, tmp_path / "run.json")
    events = json.loads((tmp_path / "run.json").read_text())["traceEvents"]
    names = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    assert list(names.values())[:4] == ["rank 0", "rank 0 network", "rank 1", "rank 1 network"]
    rows = {names[event["tid"]].partition(" ")[2] for event in events if event.get("cat") == "allgather"}
    assert rows == {"0 network", "1 network"}


def test_every_stream_fits_between_its_neighbours() -> None:
    for streams in (1, 2, 3, 4):
        scale = drawing.timeline.Scale(10.0, 4, streams=streams)
        edges = [edge for stream in range(streams) for edge in scale.row(stream)]
        assert edges == sorted(edges)
        assert edges[0] == 0
        assert abs(edges[-1] - scale.lane) < 1e-9


def test_a_bucket_is_one_call() -> None:
    trace = run(buckets(2, 1), 3, 2, 2, setting=Setting(STEP_COSTS["buckets"])).trace
    assert [len(mark.op.inputs) for mark in scene_of(trace).lanes[0].on(1)] == [2, 1]
    assert "all-reduce" in drawing.draw(trace).in_text()


def test_groups_that_meet_at_the_same_time_are_two_ties() -> None:
    async def pairs(model: Model) -> None:
        weight, _ = model.load_weights(0, model.index("column"), 2)
        await model.allgather(weight, 0, group="column")

    setting = Setting(STEP_COSTS["islands"], mesh=(("column", 2), ("row", 2)))
    scene = scene_of(run(pairs, 1, 1, 4, setting=setting).trace)
    assert sorted([mark.rank for mark in tie.members] for tie in scene.ties) == [[0, 2], [1, 3]]
    approved(
        "overlap",
        "groups that meet at the same time are two ties",
        describe(scene.ties[0].members[0]),
        "in the group of",
    )
    assert len({drawing.timeline.aside(tie) for tie in scene.ties}) == 2


def test_links_follow_tags() -> None:
    async def two_streams(model: Model) -> None:
        if model.rank == 0:
            await model.pass_to(1, model.get_activation([0]), tag=1)
            await model.pass_to(1, model.get_activation([1]), tag=2)
        else:
            await model.receive(0, tag=2)
            await model.receive(0, tag=1)

    scene = scene_of(run(two_streams, 1, 2, 2, setting=Setting(COSTS["stages"])).trace)
    assert [(link.send.tag, link.receive and link.receive.tag) for link in scene.links] == [(1, 1), (2, 2)]
    assert "with tag 2" in describe(scene.links[1].send)


async def twice(model: Model) -> None:
    weight, state = model.load_weights(0)
    inputs = model.get_activation([0])
    model.forward(0, inputs, weight)
    grad = model.loss(model.forward(0, inputs, weight))
    grad, _ = model.backward(0, inputs, grad, weight)
    weight, _ = model.update(0, grad, weight, state)
    model.set_final_weight(0, weight)


@pytest.mark.parametrize("costs", [COSTS["classic"], COSTS["stages"]])
def test_what_is_computed_again_is_hatched(costs: Costs) -> None:
    trace = run(twice, 1, 1, 1, setting=Setting(costs)).trace
    scene = scene_of(trace)
    assert [mark.again for mark in scene.marks if mark.op.name == "forward"] == [False, True]
    approved("overlap", "what is computed again is hatched", describe(scene.lanes[0].marks[1]), "forward again layer 0")
    assert run_data(scene)["again"] == [1]
    assert "recomputation" in drawing.draw(trace).in_svg()
    assert (
        "recomputation"
        not in drawing.draw(run(buckets(1), 1, 1, 1, setting=Setting(STEP_COSTS["buckets"])).trace).in_svg()
    )


def test_halves_of_backward_have_shapes_and_names() -> None:
    async def halves(model: Model) -> None:
        weight, state = model.load_weights(0)
        inputs = model.get_activation([0])
        grad = model.loss(model.forward(0, inputs, weight))
        model.backward_input(0, inputs, grad, weight)
        weight, _ = model.update(0, model.backward_weight(0, inputs, grad), weight, state)
        model.set_final_weight(0, weight)

    picture = drawing.draw(run(halves, 1, 1, 1, setting=Setting(COSTS["parts"])).trace)
    approved("overlap", "halves of backward have shapes and names", picture.in_text(), "I input gradient, W")
    approved("overlap", "halves of backward have shapes and names, 2", picture.in_svg(), "input gradient layer 0")


def test_copies_to_and_from_a_tier_have_streams_and_the_tier_has_a_peak() -> None:
    trace = run(offload(range(1, 3)), 4, 1, 1, setting=Setting(COSTS["copies"])).trace
    scene = scene_of(trace)
    assert scene.report.error is None
    assert scene.streams == ("compute", "down", "up")
    copies = [[mark.op.name for mark in scene.lanes[0].on(stream)] for stream in (1, 2)]
    assert copies == [["offload"] * 2, ["fetch"] * 2]
    assert f"host {scene.report.peaks['host'].memory:,}" in drawing.text(trace)


def test_groups_have_streams_of_their_own() -> None:
    costs = replace(STEP_COSTS["overlap"], name="streams", lanes="group")
    mesh = {"dp": 4, "pp": 2, "tp": 2}
    setting = Setting(costs, mesh=mesh, layer="block")
    scene = scene_of(run(grid(2, 2, 4, zero=1), 2, 8, 16, setting=setting).trace)
    assert scene.report.error is None
    assert scene.streams == ("compute", "network", "network 2", "network 3")
    for lane in scene.lanes:
        groups = [{mark.op.args[0] for mark in lane.on(stream) if mark.op.name in COLLECTIVES} for stream in (1, 2, 3)]
        assert sorted(map(len, groups)) == [0, 1, 1], "each group has its own; messages have one"

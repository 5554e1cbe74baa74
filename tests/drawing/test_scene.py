"""Scenes: rows that equal ranks share, streams of overlap, groups and tags, and units of time."""

import itertools
import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import drawing
from drawing import Attempt, draw, draw_compare, draw_pareto, svg, text
from drawing.html import run_data
from drawing.run_text import SHARED, describe, describe_gap, describe_run
from drawing.scene import Mark, Scene, scene_of
from lib import COLLECTIVES, COSTS, Costs, Model, Outcome, Setting, Trace, referee, run
from lib.pipelines import one_f_one_b, pipeline
from puzzles.catalog.schedule import PUZZLES
from solutions.ddp import ddp
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.replicas import buckets
from tests.screens.texts import approved
from tests.support.schedules import shards
from tests.support.schedules.tiers import offload
from tests.support.solved import reference_of
from tests.support.step_costs import STEP_COSTS
from tests.support.svg import texts, tips

# === Of more than 16 ranks those that do the same share a row ===


MANY = 20


@pytest.fixture(scope="module")
def replicas() -> Scene:
    """Data parallelism on 64 ranks, each with a microbatch of its own."""
    return scene_of(run(ddp, 2, 64, 64).trace)


@pytest.fixture(scope="module")
def mesh() -> Scene:
    """Eight pipelines of eight stages, with their optimizer states sharded."""
    return scene_of(run(grid(8, 1, 8, zero=1), 8, 32, 64, setting=Setting(mesh={"dp": 8, "pp": 8})).trace)


def ranks(scene: Scene) -> list[tuple[int, ...]]:
    return [row.ranks for row in scene.rows.every]


def rows(schedule: Callable[[Model], Any], many: int = MANY, setting: Setting | None = None) -> list[tuple[int, ...]]:
    """The ranks of each row, for a schedule that need not train anything."""
    return ranks(scene_of(run(schedule, 2, many, many, setting=setting or Setting()).trace))


def test_replicas_share_one_row(replicas: Scene) -> None:
    assert ranks(replicas) == [tuple(range(64))]


def test_each_stage_of_equal_pipelines_has_a_row(mesh: Scene) -> None:
    assert ranks(mesh) == [tuple(range(stage, 64, 8)) for stage in range(8)]


def test_stages_of_one_pipeline_share_nothing() -> None:
    trace = run(pipeline(one_f_one_b(20, 2)), 20, 2, 20).trace
    assert ranks(scene_of(trace)) == [(rank,) for rank in range(20)]


@pytest.mark.parametrize(("many", "expected"), [(16, 16), (17, 1)])
def test_sixteen_ranks_still_have_a_row_each(many: int, expected: int) -> None:
    assert len(rows(forward_once, many)) == expected


def test_a_row_shows_what_each_of_its_ranks_does(mesh: Scene) -> None:
    """Told apart from how rows are found: every rank's operations, against those of the first in its row."""

    def seen(mark: Mark) -> tuple[object, ...]:
        peer = None if mark.partner is None else mesh.rows.places[mark.partner]
        return mark.op.name, mark.op.layer, len(mark.op.batches), mark.start, mark.end, mark.memory, peer

    for row in mesh.rows.every:
        for rank in row.ranks:
            assert [seen(mark) for mark in mesh.lanes[rank].marks] == [seen(mark) for mark in row.lane.marks]


def forward_once(model: Model) -> None:
    model.forward(0, model.get_activation([model.rank]), model.load_weights(0)[0])


def late(model: Model) -> None:
    if model.rank == 7:
        model.forward(1, model.get_activation([model.rank]), model.load_weights(1)[0])
    forward_once(model)


def other_layer(model: Model) -> None:
    layer = int(model.rank == 7)
    model.forward(layer, model.get_activation([model.rank]), model.load_weights(layer)[0])


def more_batches(model: Model) -> None:
    batches = [model.rank, 0] if model.rank == 7 else [model.rank]
    first, weight = model.get_activation(batches), model.load_weights(0)[0]
    model.forward(0, first, weight)


def same_batch_twice(model: Model) -> None:
    weight = model.load_weights(0)[0]
    for batch in (model.rank, 0 if model.rank != 7 else model.rank):
        model.forward(0, model.get_activation([batch]), weight)


def more_memory(model: Model) -> None:
    if model.rank == 7:
        model.weights["spare"] = model.load_weights(1)[0]
    forward_once(model)


@pytest.mark.parametrize("schedule", [late, other_layer, more_batches, same_batch_twice, more_memory])
def test_one_rank_that_does_something_else_has_its_own_row(schedule: Callable[[Model], None]) -> None:
    found = rows(schedule)
    rest = tuple(rank for rank in range(MANY) if rank != 7)
    # Batch 0 twice is what rank 0 does in `same_batch_twice`, so it is with rank 7.
    assert found == ([(0, 7), rest[1:]] if schedule is same_batch_twice else [rest, (7,)])


async def in_pairs(model: Model) -> None:
    """Every even rank sends to the next one; rank 5 computes when it has the message."""
    out = model.get_activation([model.rank])
    if model.rank % 2 == 0:
        await model.pass_to(model.rank + 1, out)
    else:
        got = await model.receive(model.rank - 1)
        if model.rank == 5:
            model.forward(0, got, model.load_weights(0)[0])


def test_ranks_whose_peers_differ_have_different_rows() -> None:
    """Rank 4 does just what the other senders do; but its message goes to a rank of another row."""
    others = [rank for rank in range(MANY) if rank not in (4, 5)]
    assert rows(in_pairs) == [tuple(others[::2]), tuple(others[1::2]), (4,), (5,)]


def test_collectives_of_other_sizes_have_different_rows() -> None:
    async def gather(model: Model) -> None:
        group = tuple(range(2)) if model.rank < 2 else tuple(range(2, MANY))
        await model.allreduce(model.fake_grad(0, [model.rank]), 0, group=group)

    assert rows(gather, setting=Setting(mesh={"all": MANY})) == [(0, 1), tuple(range(2, MANY))]


def test_collectives_with_members_of_other_rows_have_different_rows() -> None:
    """Pairs sum their gradients. Both ranks of one pair have computed before, and one of another."""

    async def average(model: Model) -> None:
        first = model.rank - model.rank % 2
        if model.rank in (4, 5, 7):
            forward_once(model)
        await model.allreduce(model.fake_grad(0, [model.rank]), 0, group=(first, first + 1))

    rest = tuple(rank for rank in range(MANY) if rank not in (4, 5, 6, 7))
    assert rows(average, setting=Setting(mesh={"all": MANY})) == [rest, (4, 5), (6,), (7,)]


def test_measured_times_have_a_row_for_every_rank() -> None:
    trace = run(forward_once, 1, MANY, MANY).trace
    times = [[[0.0, 1.0 + rank] for _ in trace.events(rank)] for rank in range(MANY)]
    labels = [text for text in texts(drawing.draw_replay(trace, times)) if text.startswith("rank ")]
    assert labels == [f"rank {rank}" for rank in range(MANY)] * 2


# --- What is drawn ---


def test_a_picture_has_one_lane_one_strip_of_memory_and_one_bar_with_the_count(replicas: Scene) -> None:
    found = texts(drawing.draw(replicas.trace))
    assert [text for text in found if text.startswith("rank ")] == ["rank 0 x64"] * 3
    assert SHARED in found
    assert "F0" in found


def test_a_picture_without_shared_rows_says_nothing_of_them() -> None:
    assert SHARED not in texts(drawing.draw(run(ddp, 2, 4, 4).trace))


@pytest.mark.slow
def test_tooltips_name_all_ranks_of_a_row(replicas: Scene, mesh: Scene) -> None:
    found = tips(drawing.draw(replicas.trace))
    assert any(tip.startswith("rank 0 (like ranks") and tip.endswith("to 1, 1,179,648 elements") for tip in found)
    assert any(re.fullmatch(r"ranks 0-63: weights, at most [\d,]+ elements", tip) for tip in found)
    like = "rank 1 (like ranks 9, 17, 25, 33, 41, 49, 57)"
    assert any(tip.startswith(f"{like} idle, ") for tip in tips(drawing.draw(mesh.trace)))


def test_tooltips_of_training_steps_name_all_ranks_of_a_row() -> None:
    setting = Setting("slow", steps=4, task="local")
    picture = drawing.draw(run(shards.local_sgd(2), 1, MANY, MANY, setting=setting).trace)
    assert [tip.partition(",")[0] for tip in tips(picture) if ": step " in tip] == [
        "ranks 0-19: step 1",
        "ranks 0-19: step 3",
    ]


def test_arrows_are_those_of_the_first_replica(mesh: Scene) -> None:
    """They go to the row of the rank that receives, and there are as many as one pipeline has messages."""
    drawn = mesh.rows.links(mesh.links)
    assert len(mesh.links) == 8 * len(drawn) > 0
    assert all(link.source < 8 and abs(mesh.rows.places[link.target] - link.source) == 1 for link in drawn)


def test_messages_between_ranks_of_a_row_have_no_arrow() -> None:
    async def ring(model: Model) -> None:
        await model.pass_to((model.rank + 1) % MANY, model.get_activation([model.rank]))
        await model.receive((model.rank - 1) % MANY)

    scene = scene_of(run(ring, 1, MANY, MANY).trace)
    assert (ranks(scene), len(scene.links)) == ([tuple(range(MANY))], MANY)
    assert scene.rows.links(scene.links) == ()
    assert run_data(scene)["links"] == []
    approved(
        "rows", "messages between ranks of a row have no arrow", tips(drawing.draw(scene.trace)), "rank 0 (like ranks"
    )


def test_a_message_that_nobody_reads_is_drawn_to_its_row() -> None:
    async def unread(model: Model) -> None:
        if model.rank:
            await model.pass_to(0, model.get_activation([model.rank]))

    scene = scene_of(run(unread, 1, MANY, MANY).trace)
    assert ranks(scene) == [(0,), tuple(range(1, MANY))]
    assert [(link.source, link.target, link.receive) for link in scene.rows.links(scene.links)] == [(1, 0, None)]
    assert drawing.draw(scene.trace, critical=True)


def test_a_collective_is_drawn_once_through_its_rows(mesh: Scene) -> None:
    drawn = mesh.rows.ties(mesh.ties)
    assert len(mesh.ties) == len(drawn) > 0  # every stage's groups are over all replicas
    assert all(len(tie.members) == 1 and tie.members[0].rank < 8 for tie in drawn)


def test_text_has_one_line_for_each_row(mesh: Scene) -> None:
    lines = drawing.text(mesh.trace).splitlines()
    assert [line[:10] for line in lines if line.startswith("rank ")] == [f"rank {rank} x8 " for rank in range(8)] * 3
    assert SHARED in " ".join(lines)


@pytest.mark.parametrize(("odd", "words"), [(7, "and 1 more rank"), (0, "and 19 more ranks")])
def test_text_counts_the_ranks_that_it_leaves_out(odd: int, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_layer(model: Model) -> None:
        layer = int(model.rank == odd)
        model.forward(layer, model.get_activation([model.rank]), model.load_weights(layer)[0])

    monkeypatch.setattr(drawing.run_text, "MAX_ROWS", 1)
    assert words in drawing.text(run(other_layer, 2, MANY, MANY).trace).splitlines()


def test_a_page_has_the_data_of_drawn_ranks_only(mesh: Scene) -> None:
    data = run_data(mesh)
    assert data["labels"] == [f"rank {rank} x8" for rank in range(8)]
    assert (data["ranks"], data["rank"]) == (8, [rank for rank in range(8) for _ in mesh.lanes[rank].marks])
    assert (
        len(data["rank"]) == len(data["words"]) == len(data["needs"]) == sum(len(mesh.lanes[r].marks) for r in range(8))
    )
    last = len(data["rank"]) - 1
    for numbers in [*data["needs"], *data["groups"], *data["links"], data["critical"]]:
        assert all(0 <= number <= last for number in numbers)
    assert data["memory"]["peak"][:2] == [mesh.report.peak.memory, mesh.report.peak.rank % 8]
    assert SHARED in [item["words"] for item in data["legend"]]
    assert len(data["traffic"]["ranks"]) == 8


def test_what_an_operation_needs_is_that_of_an_unshared_picture(mesh: Scene) -> None:
    """The operations of the first pipeline need the same, by words, whether ranks share rows or not."""
    alone = scene_of(run(grid(8, zero=1), 8, 4, 8, setting=Setting(mesh={"dp": 1, "pp": 8})).trace)
    few, many = run_data(alone), run_data(mesh)

    def needed(data: dict[str, Any]) -> list[list[str]]:
        names = [re.sub(r" \(like.*?\)|, t=.*| in the group.*", "", words) for words in data["words"]]
        computed = [n for n, name in enumerate(names) if re.search("forward|backward", name)]
        return [[names[n], *sorted(names[m] for m in data["needs"][n])] for n in computed]

    assert needed(many) == needed(few)


def test_a_screen_reader_is_told_of_all_ranks(replicas: Scene, mesh: Scene) -> None:
    approved("rows", "a screen reader is told of all ranks", describe_run(replicas), "Rank 0 (like ranks")
    assert "more rank" not in describe_run(mesh)


def test_the_critical_path_is_drawn_where_its_rows_are(mesh: Scene) -> None:
    """One point after the other, at the times that the referee names."""
    data = run_data(mesh)
    names = [(data["rank"][n], data["start"][n]) for n in data["critical"]]
    assert [key for key, _ in groupby(names)] == [
        key for key, _ in groupby((mark.rank % 8, mark.start) for mark in mesh.critical)
    ]


# === Communication beside computation, groups, tags, recomputation ===


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


# === Runs in microseconds ===


GOAL = PUZZLES["hierarchy"].goal


@pytest.fixture(scope="module")
def hierarchy() -> Outcome:
    return run(reference_of("hierarchy"), *GOAL.size, setting=GOAL.setting)


def test_a_timeline_counts_in_microseconds(hierarchy: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    picture = svg(draw(hierarchy.trace, "Sums", goal=GOAL))
    assert "3,688 us (target &lt;" in picture
    assert ">us<" in picture
    assert ">3,000<" in picture
    assert "steps" not in picture
    assert 'width="1000"' in picture, "as wide as a notebook"
    assert capsys.readouterr().out.startswith("Timesteps: 3,688\n")


def test_a_text_picture_counts_in_microseconds(hierarchy: Outcome) -> None:
    lines = text(hierarchy.trace, "Sums", goal=GOAL).splitlines()
    assert any(line.startswith("us ") for line in lines)
    assert lines[-1].endswith(" us")
    assert not any("steps" in line for line in lines)


@pytest.mark.slow
def test_two_runs_are_compared_in_microseconds(hierarchy: Outcome) -> None:
    picture = svg(draw_compare(hierarchy.trace, hierarchy.trace, "Sums"))
    assert "as many us" in picture


def test_the_front_is_in_microseconds(hierarchy: Outcome) -> None:
    picture = svg(draw_pareto(GOAL, [Attempt("mine", referee(hierarchy.trace, GOAL))]))
    assert "target: &lt; 3,800 us" in picture
    assert ">us<" in picture
    assert "timesteps" not in picture


def test_a_run_of_no_computation_can_be_drawn() -> None:
    def only_updates(model: object) -> None:
        model.load_weights(0)  # type: ignore[attr-defined]
        model.get_activation([0])  # type: ignore[attr-defined]

    trace = run(only_updates, 1, 1, 1, setting=Setting("hopper_nvlink")).trace
    assert "<svg" in svg(draw(trace))

"""Replays: on real tensors schedules give the weights or outputs of one device, in the memory and bytes predicted."""

from dataclasses import replace as changed
from functools import partial
from math import isclose
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

import drawing
from drawing.predicted_vs_measured import measured as moved
from drawing.run_text import reasons
from drawing.scene import scene_of
from lib import COSTS, TIMED, Costs, Model, PuzzleError, Record, Setting, Trace, TraceError, referee, run
from lib import pipelines as schedules
from lib.engine.replay.rank import PERFORM, ReplayEngine
from lib.engine.replay.replay import NO_TENSORS, measured, replay, replay_from_json, replay_to_json
from lib.ledger.costs import Tier
from lib.ledger.trace import FORMS
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli.main import main
from tests.catalog.lessons.families.replicas import buckets
from tests.ledger.test_random_programs import MESH, OVERLAPPING, Choices, Nested
from tests.oracles.tensor_interpreter import outcome
from tests.screens.texts import approved, approved_refusal
from tests.support import CLASSICS, Classic
from tests.support.examples import examples
from tests.support.refusals import Refused
from tests.support.replays import GAMES, Game, trace_of
from tests.support.schedules import shards, tiers
from tests.support.selection import first_of_each_kind
from tests.support.solved import SOME_RECORDS, played, record_name, reference_of, solved_by

# === The classics and records ===


in_this_process = pytest.mark.usefixtures("in_this_process")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_classics_give_the_weights_of_one_device_in_the_predicted_memory(classic: Classic) -> None:
    result = replay(run(classic.solution, *classic.size).trace, small=True, goal=classic.goal)
    assert (result.error, result.passed) == (0.0, True)
    # The small tensors are the game's, 1024 times smaller: so is the peak, at four bytes an element.
    assert max(rank.peak for rank in result.ranks) * 1024 == classic.peak_memory * 4


@pytest.mark.sampled(3)
@pytest.mark.parametrize("record", SOME_RECORDS, ids=record_name)
def test_the_records_run_too(record: Record) -> None:
    for puzzle, function in solved_by(record):
        assert replay(played(puzzle, function).trace, small=True).passed


@examples(40)
@given(st.integers(1, 3), st.integers(1, 4), st.sampled_from([1, 2, 4]), st.integers(0, 10**9))
def test_random_legal_schedules_run_to_the_right_weights(layers: int, batches: int, ranks: int, seed: int) -> None:
    trace = run(Choices(ranks, seed), layers, batches, ranks).trace
    assert replay(trace, small=True).passed


def test_uneven_gathers_and_messages_of_several_values() -> None:
    async def schedule(model: Model) -> None:
        first = model.rank == 0
        part = model.load_weights(0, 0, 4) if first else model.load_weights(0, 2, 4)
        extra = model.load_weights(0, 1, 4) if first else model.load_weights(0, 3, 4)
        weight, state = part[0].combine(extra[0]), part[1].combine(extra[1])
        more = None
        if first:
            await model.pass_to(1, (weight.shard(1, 4), model.get_activation([0])))
            weight = weight.shard(0, 4)
        else:
            more, inp = await model.receive()
            weight = weight.combine(more)
        whole = await model.allgather(weight, 0)
        if first:
            grad = model.fake_grad(0, [])
        else:
            out = model.forward(0, inp, whole)
            grad, _ = model.backward(0, inp, model.loss(out), whole)
        grad = await model.allreduce(grad, 0)
        mine = weight if first else weight.shard(2, 4).combine(weight.shard(3, 4))
        new, _ = model.update(0, grad, mine, state)
        model.set_final_weight(0, new)
        if first:
            new, _ = model.update(0, grad, *extra)
            model.set_final_weight(0, new)

    outcome = run(schedule, 1, 1, 2)
    assert outcome.error is None
    result = replay(outcome.trace, small=True)
    assert result.same_weights
    assert [rank.messages for rank in result.ranks] == [1, 0]
    # In an uneven gather every rank sends as much as the one that has most; all else is as predicted.
    assert [rank.sent - rank.predicted_sent for rank in result.ranks] == [512, 0]


# --- What is refused ----------------------------------------------------------------------------------


def legal() -> Trace:
    return run(CLASSICS[4].solution, 2, 2, 2).trace  # fsdp


def rewritten(rank: int, name: str, nth: int, /, **columns: Any) -> Trace:
    """A legal trace with other columns in one operation: `inputs` may be a function of what was used."""
    trace = legal()
    ops = list(trace.ranks[rank])
    places = [i for i, op in enumerate(ops) if op.name == name]
    i = places[nth]
    ops[i] = ops[i]._replace(**columns)
    return changed(trace, ranks=tuple(tuple(ops) if r == rank else part for r, part in enumerate(trace.ranks)))


def made_by(rank: int, name: str, nth: int, which: int = 0) -> int:
    return [op for op in legal().ranks[rank] if op.name == name][nth].outputs[which]


def used_by(rank: int, name: str, nth: int) -> tuple[int, ...]:
    return [op for op in legal().ranks[rank] if op.name == name][nth].inputs


def exchange(rank: int, name: str, nth: int, at: int, number: int) -> Trace:
    used = list(used_by(rank, name, nth))
    used[at] = number
    return rewritten(rank, name, nth, inputs=tuple(used))


REFUSED = {
    "forward with a shard of the weight": lambda: exchange(0, "forward", 0, 1, made_by(0, "load_weights", 0)),
    "forward with another layer's weight": lambda: exchange(0, "forward", 1, 1, made_by(0, "allgather", 0)),
    "forward with another layer's input": lambda: exchange(0, "forward", 1, 0, made_by(0, "get_activation", 0)),
    "backward with another layer's input": lambda: exchange(0, "backward", 0, 0, made_by(0, "get_activation", 0)),
    "backward with another layer's gradient": lambda: exchange(0, "backward", 1, 1, made_by(0, "loss", 0)),
    "backward with another layer's weight": lambda: exchange(0, "backward", 1, 2, made_by(0, "allgather", 1)),
    "an update with one batch": lambda: exchange(0, "update", 0, 0, made_by(0, "backward", 1)),
    "an update with another layer's gradient": lambda: exchange(0, "update", 0, 0, made_by(0, "scatterreduce", 0)),
    "an update with another layer's state": lambda: exchange(0, "update", 0, 2, made_by(0, "load_weights", 1, 1)),
    "an update of another layer's weight": lambda: exchange(0, "update", 1, 1, made_by(0, "load_weights", 0)),
    "a weight that was not updated": lambda: rewritten(
        0, "set_final_weight", 0, inputs=(made_by(0, "load_weights", 0),)
    ),
    "another layer's final weight": lambda: rewritten(0, "set_final_weight", 0, inputs=(made_by(0, "update", 1),)),
    "one batch for both ranks": lambda: rewritten(1, "get_activation", 0, batches=frozenset({0})),
    "a reduction of another layer's gradient": lambda: rewritten(
        0, "scatterreduce", 1, inputs=(made_by(0, "backward", 0),)
    ),
    "the same shard from both ranks": lambda: rewritten(1, "load_weights", 0, args=(0, 2)),
    "collectives of different kinds": lambda: rewritten(0, "scatterreduce", 0, name="allreduce"),
    "an unfinished trace": lambda: changed(legal(), ranks=tuple(ops[:-1] for ops in legal().ranks)),
    "a value that does not exist yet": lambda: rewritten(0, "forward", 0, inputs=(999, 998)),
}


@pytest.mark.sampled(8)
@pytest.mark.parametrize("mistake", REFUSED)
def test_what_the_referee_refuses_gives_other_weights_and_is_not_replayed(mistake: str) -> None:
    trace = REFUSED[mistake]()
    assert (outcome(legal()), outcome(trace) == "right") == ("right", False)
    assert referee(trace).error is not None
    with pytest.raises(PuzzleError):
        replay(trace, small=True)


def test_values_made_by_hand_have_no_tensor() -> None:
    from lib import Weight

    def schedule(model: Model) -> None:
        model.forward(0, model.get_activation([0]), Weight(0, 1, 0))
        weight, state = model.load_weights(0)
        out = model.forward(0, model.get_activation([0]), weight)
        grad, _ = model.backward(0, model.get_activation([0]), model.loss(out), weight)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    with approved_refusal("replay", "values made by hand have no tensor", PuzzleError):
        replay(run(schedule, 1, 1, 1).trace, small=True)


# --- The command --------------------------------------------------------------------------------------


@in_this_process
def test_the_command_shows_predicted_beside_measured() -> None:
    result = CliRunner().invoke(main, ["run", "solutions/gpipe.py", "gpipe", "--small"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    approved(
        "replay",
        "the command shows predicted beside measured",
        result.output,
        "gpipe on 4 devices,",
        "The updated weights equal",
        "Predicted: 33.3 timesteps, 33.8",
    )
    assert "share of the work," in result.output
    assert result.output.count("equal") == 5
    assert "Measured: " in result.output


@in_this_process
def test_the_command_draws_predicted_above_measured(tmp_path: Path) -> None:
    path = tmp_path / "gpipe.svg"
    words = ["run", "solutions/gpipe.py", "gpipe", "--small", "-o", str(path)]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (result.exit_code, f"Wrote {path}" in result.output.replace("\n", "")) == (0, True), result.output
    told = " ".join(ElementTree.fromstring(path.read_text()).itertext())
    assert told.index("33.8 steps, 42.6% idle") < told.index("Measured: ")
    assert "The updated weights equal" in told
    assert told.count("waits for rank") > 4


@in_this_process
@pytest.mark.parametrize(
    ("path", "slug", "output", "words"),
    [
        ("solutions/ddp.py", "ddp", "ddp.html", "only the timeline of one run can be written as .html; use .svg"),
        ("solutions/ddp.py", "ddp", "ddp.gif", "the ending '.gif' is unknown; use"),
        (
            "solutions/engine/fsdp.py",
            "FSDP",
            "fsdp.svg",
            "FSDP is a class, and only runs of schedules are drawn; leave out -o",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_it_runs(path: str, slug: str, output: str, words: str) -> None:
    result = CliRunner().invoke(main, ["run", path, slug, "-o", output])
    assert (result.exit_code, words in " ".join(result.output.split())) == (2, True), result.output


@in_this_process
def test_a_picture_that_cannot_be_written_is_an_error_of_the_call(tmp_path: Path) -> None:
    words = ["run", "solutions/basic.py", "basic", "--small", "-o", str(tmp_path / "none" / "basic.svg")]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "no such file" in " ".join(result.output.split())) == (2, True)


@in_this_process
def test_the_command_takes_another_number_of_ranks() -> None:
    result = CliRunner().invoke(main, ["run", "solutions/ddp.py", "ddp", "--small", "-n", "2"])
    assert "was not run" in result.output  # ddp takes one batch for each rank
    result = CliRunner().invoke(main, ["run", "solutions/pipeline.py", "pipeline", "--small", "-n", "2"])
    assert (result.exit_code, "on 2 devices" in result.output) == (0, True)


@in_this_process
def test_a_schedule_that_fails_is_not_run(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def basic(model):\n    model.load_weights(7)\n")
    result = CliRunner().invoke(main, ["run", str(path), "basic"])
    assert result.exit_code == 1
    approved("replay", "a schedule that fails is not run", result.output, "basic was not run:")
    result = CliRunner().invoke(main, ["run", str(path), "ddp"])
    assert (result.exit_code, "has no function ddp" in result.output) == (1, True)


# --- What is measured ---


def test_one_run_warms_up_and_medians_of_the_others_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first run takes a minute an event, the measured ones 1, 5 and 2 seconds."""
    trace = played(PUZZLES["ddp"], reference_of("ddp")).trace
    taken = iter([60.0, 1.0, 5.0, 2.0])
    forward = ReplayEngine.forward
    now: dict[int, float] = {}

    def forwards(self: ReplayEngine, x: Any) -> Any:
        number = now[self.device_id] = now.get(self.device_id, -1) + 1
        while len(lengths) <= number:
            lengths.append(next(taken))
        result = forward(self, x)
        return {**result, "seconds": [lengths[number]] * len(result["seconds"])}

    lengths: list[float] = []
    monkeypatch.setattr(ReplayEngine, "forward", forwards)
    result = replay(trace, small=True, runs=3)
    assert result.passed
    assert (result.runs, lengths) == (3, [60.0, 1.0, 5.0, 2.0])
    assert all(event.end - event.start == pytest.approx(2.0) for rank in result.measured for event in rank)


@pytest.mark.parametrize("width", [16, 48])
def test_a_width_is_the_size_of_a_matrix(width: int) -> None:
    trace = played(PUZZLES["fsdp"], reference_of("fsdp")).trace
    result = replay(trace, width=width)
    assert result.passed
    assert result.width == width
    usual = sum(len(rank) for rank in result.measured)
    assert usual == sum(len(trace.events(rank)) for rank in range(len(trace.ranks)))


@pytest.mark.parametrize("options", [{"width": 24}, {"width": 16, "small": True}, {"runs": 0}])
def test_odd_widths_and_no_runs_are_refused(options: dict[str, Any]) -> None:
    trace = played(PUZZLES["ddp"], reference_of("ddp")).trace
    with Refused("impossible measurement", error=TraceError):
        replay(trace, **options)


# === Extended schedules ===


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", first_of_each_kind(((name,) for name in GAMES), lambda _: None, every=3))
def test_a_schedule_gives_the_results_of_one_device_in_the_predicted_memory(name: str) -> None:
    result = replay(trace_of(name), small=True)
    assert (result.error, result.passed) == (0.0, True)
    assert result.results == ("outputs" if GAMES[name].setting.task == "infer" else "weights")


FLOAT = ["hybrid_shard", "zb_h2 for two steps", "sequence_parallel", "expert_parallel", "local_sgd_twice", "offload"]


def narrow(game: Game) -> Game:
    """The same with narrower layers and fewer tokens."""
    return game._replace(setting=changed(game.setting, costs=changed(game.setting.costs, hidden=64, length=32)))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FLOAT)
def test_so_it_does_in_float32(name: str) -> None:
    result = replay(narrow(GAMES[name]).trace())
    assert result.passed
    assert result.error < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOAT)
def test_so_it_does_in_full_size(name: str) -> None:
    trace = trace_of(name)
    result = replay(trace)
    assert result.passed
    costs = trace.costs
    if costs.activation_grad == costs.activation and costs.weight == costs.hidden**2:
        assert max(rank.peak for rank in result.ranks) == 4 * referee(trace).peak.memory


def pipeline_of(draw: Any, ranks: int, count: int) -> Game:
    order = draw(st.sampled_from([schedules.one_f_one_b, schedules.zb_h1, schedules.zb_h2]))
    steps = draw(st.integers(1, 3))
    return Game(schedules.pipeline(order), (ranks, count, ranks), Setting(COSTS["parts"], steps=steps))


def buckets_of(draw: Any, ranks: int, count: int) -> Game:
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    return Game(buckets(*sizes), (sum(sizes), ranks, ranks), Setting(COSTS["buckets"]))


def replicas_of(draw: Any, ranks: int, count: int) -> Game:
    every = draw(st.integers(1, 2))
    return Game(shards.local_sgd(every), (2, ranks, ranks), Setting(COSTS["slow"], steps=2 * every, task="local"))


def blocks_of(draw: Any, ranks: int, count: int) -> Game:
    schedule = draw(st.sampled_from([schedules.tensor_parallel, schedules.sequence_parallel]))
    layers = draw(st.integers(1, 3))
    ranks = draw(st.sampled_from([2, 4]))
    return Game(schedule, (layers, count, ranks), Setting(COSTS["quarters"], layer="block"))


def experts_of(draw: Any, ranks: int, count: int) -> Game:
    ranks, layers = draw(st.sampled_from([2, 4])), draw(st.integers(1, 3))
    schedule = draw(st.sampled_from([shards.expert_parallel, shards.experts_in_turn]))
    return Game(schedule, (layers, ranks * draw(st.integers(1, 2)), ranks), Setting(COSTS["experts"], layer="experts"))


def copies_of(draw: Any, ranks: int, count: int) -> Game:
    layers = draw(st.integers(2, 6))
    parked = draw(st.sets(st.integers(1, layers - 1)))
    return Game(tiers.offload(parked, draw(st.integers(1, 3))), (layers, 1, 1), Setting(COSTS["copies"]))


@examples(30)
@given(
    st.data(),
    st.sampled_from([pipeline_of, buckets_of, replicas_of, blocks_of, experts_of, copies_of]),
    st.integers(2, 4),
    st.integers(1, 5),
)
def test_schedules_of_any_size_give_the_weights_of_one_device(data: Any, game_of: Any, ranks: int, count: int) -> None:
    game = game_of(data.draw, ranks, count)
    assert replay(game.trace(), small=True).passed, game


async def trained_alone(model: Model) -> None:
    """Every rank trains all layers with all batches, which makes a trace whole that computes anything before."""
    weights = [model.load_weights(layer) for layer in range(model.LAYERS)]
    inputs = [model.get_activation(range(model.BATCHES))]
    for layer, (weight, _) in enumerate(weights):
        inputs.append(model.forward(layer, inputs[layer], weight))
    grad = model.loss(inputs[-1])
    for layer, (weight, state) in reversed(list(enumerate(weights))):
        weight_grad, grad = model.backward(layer, inputs[layer], grad, weight)
        model.set_final_weight(layer, model.update(layer, weight_grad, weight, state)[0])


@pytest.mark.slow
@examples(25)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**9), st.sampled_from(OVERLAPPING))
def test_random_calls_under_way_keep_to_the_predicted_memory_and_bytes(
    layers: int, batches: int, seed: int, costs: Costs
) -> None:
    """Nested groups, buckets, chains of calls and tags: nobody stands still, though every call of the engine blocks."""
    random_calls = Nested(seed)

    async def then_training(model: Model) -> None:
        await random_calls(model)
        await trained_alone(model)

    trace = run(then_training, layers, batches, 4, setting=Setting(costs, MESH)).trace
    assert replay(trace, small=True).passed


# --- Time ---------------------------------------------------------------------------------------------


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GAMES)
def test_events_as_long_as_predicted_are_where_the_trace_has_them(name: str) -> None:
    trace = trace_of(name)
    steps = trace.costs.steps
    lengths = [[steps(op.end - op.start) for op in ops if op.name in TIMED] for ops in trace.ranks]
    for lane, seen in zip(scene_of(trace).lanes, measured(trace, lengths), strict=True):
        for mark, event in zip(lane.marks, seen, strict=True):
            assert (mark.op.name, mark.op.layer) == event[:2]
            told = mark.start, mark.end, mark.called, mark.awaited
            assert all((a is b is None) or isclose(a, b, abs_tol=1e-9) for a, b in zip(told, event[2:], strict=True))


PICTURED = {
    **{classic.slug: lambda classic=classic: run(classic.solution, *classic.size).trace for classic in CLASSICS},
    **{
        name: partial(trace_of, name)
        for name in ("fsdp_prefetch", "ddp_overlap", "expert_parallel", "offload", "tangle", "hybrid_shard")
    },
}


@pytest.mark.parametrize("name", PICTURED)
def test_a_picture_of_what_was_predicted_waits_as_the_referee_says(name: str) -> None:
    scene = scene_of(PICTURED[name]())
    again = moved(scene, [[(m.start, m.end, m.called, m.awaited) for m in lane.marks] for lane in scene.lanes])
    for lane, seen in zip(scene.lanes, again.lanes, strict=True):
        assert seen.marks == tuple(mark._replace(memory=None) for mark in lane.marks)
        assert [gap[:2] for gap in seen.gaps] == [gap[:2] for gap in lane.gaps]
        assert [reasons(gap, again) for gap in seen.gaps] == [reasons(gap, scene) for gap in lane.gaps]
    assert again.end == scene.end
    assert again.report.bubble == pytest.approx(scene.report.bubble)
    assert [rank.busy for rank in again.report.ranks] == pytest.approx([rank.busy for rank in scene.report.ranks])


def test_both_halves_of_a_picture_have_the_streams_of_the_trace() -> None:
    trace = trace_of("fsdp_prefetch")
    result = replay(trace, small=True)
    times = [[event[2:] for event in rank] for rank in result.measured]
    (svg,) = [drawing.svg(drawing.draw_replay(trace, times, "prefetched"))]
    words = list(ElementTree.fromstring(str(svg)).itertext())
    assert words.count("network") == 2 * len(trace.ranks)
    assert any("called at t=" in word for word in words)
    assert all(0 <= float(word.rstrip("%")) <= 100 for word in words if word.strip().endswith("%") and len(word) < 5)


# --- What is refused ------------------------------------------------------------------------------------


def parked_on(tier: str) -> Trace:
    async def schedule(model: Model) -> None:
        model.parked[0], model.parked[1] = model.load_weights(0, tier=tier)
        weight, state = await model.fetch(model.parked[0]), await model.fetch(model.parked[1])
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        model.set_final_weight(0, model.update(0, grad, weight, state)[0])

    costs = changed(COSTS["classic"], name="parked", tiers={tier: Tier(5, 5)})
    return run(schedule, 1, 1, 1, setting=Setting(costs)).trace


def test_host_and_disk_are_the_tiers_of_a_replay() -> None:
    for tier in ("host", "disk"):
        (rank,) = replay(parked_on(tier), small=True).ranks
        assert (rank.same, rank.parked, rank.predicted_parked) == (True, 2048, 2048)
    with Refused(
        "tier not replayed",
        rank=0,
        name="load_weights",
        tier="flash",
        tiers="host and disk",
        tier_here="host",
        error=TraceError,
    ):
        replay(parked_on("flash"), small=True)


def test_every_operation_is_played_or_touches_no_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(PERFORM) | set(NO_TENSORS) == set(FORMS)
    monkeypatch.delitem(PERFORM, "dispatch")  # type: ignore[arg-type]  # it is a dict
    with Refused("cannot be played", name="dispatch", rank=0, error=TraceError):
        replay(trace_of("experts_in_turn"), small=True)


def test_ranks_with_more_tokens_than_others_make_all_send_as_many() -> None:
    async def schedule(model: Model) -> None:
        mine = [[0, 2, 3], [1]][model.rank]
        weight, state = model.load_weights(0, model.rank, 2)
        there = await model.dispatch(model.get_activation(mine), 0)
        out = await model.collect(model.forward(0, there, weight), 1, mine)
        grad = await model.dispatch(model.loss(out), 0)
        weight_grad, _ = model.backward(0, there, grad, weight)
        model.set_final_weight(0, model.update(0, weight_grad, weight, state)[0])

    result = replay(Game(schedule, (1, 4, 2), Setting(COSTS["experts"], layer="experts")).trace(), small=True)
    assert result.same_weights
    assert all(rank.same_memory for rank in result.ranks)
    # A batch has 512 bytes, of which half go to the other rank; three times three of them from both ranks.
    assert [rank.sent for rank in result.ranks] == [3 * 3 * 256] * 2
    assert [rank.predicted_sent for rank in result.ranks] == [(3 + 2 + 3) * 256, (1 + 2 + 1) * 256]


def test_shards_that_tensors_do_not_have_are_refused_with_their_numbers() -> None:
    game = Game(shards.experts_in_turn, (1, 16, 16), Setting(COSTS["experts"], layer="experts"))
    with Refused("no equal shards", count=8, total=16, error=TraceError):
        replay(game.trace(), small=True)
    game = Game(schedules.tensor_parallel, (1, 1, 3), Setting(COSTS["quarters"], layer="block"))
    with Refused("no equal shards", count=16, total=3, error=TraceError):
        replay(game.trace(), small=True)


def test_what_costs_count_otherwise_is_said() -> None:
    (note,) = replay(trace_of("zb_h1"), small=True).notes
    approved("replay_extended", "what costs count otherwise is said", note)
    (note,) = replay(trace_of("expert_parallel"), small=True).notes
    assert replay(trace_of("ddp_overlap"), small=True).notes == ()


def test_a_layer_that_is_no_whole_number_of_matrices_is_refused() -> None:
    costs = changed(COSTS["classic"], name="odd", parameters=512 * 512 + 512)
    trace = run(GAMES["ddp_overlap"].schedule, *GAMES["ddp_overlap"].size, setting=Setting(costs)).trace
    with Refused("no whole matrices", weight=262656, error=TraceError):
        replay(trace, small=True)


def test_a_replay_survives_json() -> None:
    basic = run(CLASSICS[0].solution, *CLASSICS[0].size).trace
    for trace in (basic, *map(trace_of, ("offload", "zb_h1", "stream_inference"))):
        result = replay(trace, small=True)
        assert replay_from_json(replay_to_json(result)) == result

"""Schedules that really run: on real tensors they give the weights of one device, in the memory that was predicted."""

from __future__ import annotations

from dataclasses import replace as changed
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from drawing.predicted_vs_measured import measured
from drawing.run_text import reasons
from drawing.scene import scene_of
from lib import Model, PuzzleError, Record, Trace, TraceError, referee, run
from lib.engine.replay.rank import ReplayEngine
from lib.engine.replay.replay import replay, replay_from_json, replay_to_json
from puzzles.catalog.schedule import PUZZLES
from puzzles.cli.main import main
from tests.ledger.test_random_programs import Choices
from tests.screens.texts import approved, approved_refusal
from tests.support import CLASSICS, Classic
from tests.support.examples import examples
from tests.support.refusals import Refused
from tests.support.solved import SOME_RECORDS, played, record_name, reference_of, solved_by
from tests.support.tensor_interpreter import outcome

pytestmark = pytest.mark.usefixtures("in_this_process")

ROOT = Path(__file__).parents[2]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_the_classics_give_the_weights_of_one_device_in_the_predicted_memory(classic: Classic) -> None:
    result = replay(run(classic.solution, *classic.size).trace, small=True, goal=classic.goal)
    assert (result.error, result.passed) == (0.0, True)
    # The small tensors are the game's, 1024 times smaller: so is the peak, at four bytes an element.
    assert max(rank.peak for rank in result.ranks) * 1024 == classic.peak_memory * 4


@pytest.mark.slow
def test_full_tensors_take_as_many_bytes_as_the_game_counts() -> None:
    ddp = CLASSICS[2]
    result = replay(run(ddp.solution, *ddp.size).trace)
    assert result.passed
    assert result.error < 1e-5
    assert max(rank.peak for rank in result.ranks) == ddp.peak_memory * 4


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


def test_a_replay_survives_json() -> None:
    result = replay(run(CLASSICS[0].solution, *CLASSICS[0].size).trace, small=True)
    assert replay_from_json(replay_to_json(result)) == result


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


def test_the_command_draws_predicted_above_measured(tmp_path: Path) -> None:
    path = tmp_path / "gpipe.svg"
    words = ["run", "solutions/gpipe.py", "gpipe", "--small", "-o", str(path)]
    result = CliRunner().invoke(main, words, catch_exceptions=False)
    assert (result.exit_code, f"Wrote {path}" in result.output.replace("\n", "")) == (0, True), result.output
    told = " ".join(ElementTree.fromstring(path.read_text()).itertext())
    assert told.index("33.8 steps, 42.6% idle") < told.index("Measured: ")
    assert "The updated weights equal" in told
    assert told.count("waits for rank") > 4


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


def test_a_picture_that_cannot_be_written_is_an_error_of_the_call(tmp_path: Path) -> None:
    words = ["run", "solutions/basic.py", "basic", "--small", "-o", str(tmp_path / "none" / "basic.svg")]
    result = CliRunner().invoke(main, words)
    assert (result.exit_code, "no such file" in " ".join(result.output.split())) == (2, True)


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_a_picture_of_what_was_predicted_waits_as_the_referee_says(classic: Classic) -> None:
    scene = scene_of(run(classic.solution, *classic.size).trace)
    again = measured(scene, [[(mark.start, mark.end) for mark in lane.marks] for lane in scene.lanes])
    assert [lane.marks for lane in again.lanes] == [
        tuple(mark._replace(memory=None) for mark in lane.marks) for lane in scene.lanes
    ]
    assert again.end == scene.end
    assert again.report.bubble == pytest.approx(scene.report.bubble)
    assert [rank.busy for rank in again.report.ranks] == pytest.approx([rank.busy for rank in scene.report.ranks])
    for lane, seen in zip(scene.lanes, again.lanes, strict=True):
        assert [gap[:2] for gap in seen.gaps] == [gap[:2] for gap in lane.gaps]
        assert [reasons(gap, again) for gap in seen.gaps] == [reasons(gap, scene) for gap in lane.gaps]


def test_the_command_takes_another_number_of_ranks() -> None:
    result = CliRunner().invoke(main, ["run", "solutions/ddp.py", "ddp", "--small", "-n", "2"])
    assert "was not run" in result.output  # ddp takes one batch for each rank
    result = CliRunner().invoke(main, ["run", "solutions/pipeline.py", "pipeline", "--small", "-n", "2"])
    assert (result.exit_code, "on 2 devices" in result.output) == (0, True)


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

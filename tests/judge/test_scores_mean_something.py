"""Stars are for the puzzle's idea: no reloading instead of gathering, no rank that does all at the other sizes, and
records of the puzzle's own kind to be compared with."""

from dataclasses import replace
from typing import Any

import pytest

from lib import Goal, Model, Record, Size, referee, run
from lib.ledger.family import DATA_PARALLEL, PIPELINE, SHARDED
from puzzles import play
from puzzles.catalog.schedule import PUZZLES
from puzzles.player.result import Result
from puzzles.tracks import track_of
from puzzles.tracks.schedule.feedback import standing
from tests.support.mistakes import altered
from tests.support.solved import reference_of
from tests.support.variants import module_of

pytestmark = pytest.mark.usefixtures("in_this_process")


def played(slug: str, function: Any) -> Result:
    result: Result = play(slug, function)
    return result


# --- Loading instead of gathering ---


def without_a_gather(again: bool, scatter: bool) -> Any:
    """Sharded training without a gather: each rank loads whole weights from outside, once or before every use."""

    async def schedule(model: Model) -> None:
        weights, states, activations, grads, _ = model.storage()
        wholes: dict[int, Any] = {}
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

        def whole(layer: int) -> Any:
            if again or layer not in wholes:
                wholes[layer] = model.load_weights(layer)[0]
            return wholes[layer]

        for layer in range(model.LAYERS):
            inp = activations[layer] if layer else model.get_activation([model.rank])
            activations[layer + 1] = model.forward(layer, inp, whole(layer))
        grads["out"] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            inp = activations.pop(layer) if layer else model.get_activation([model.rank])
            grad, grads["out"] = model.backward(layer, inp, grads["out"], whole(layer))
            wholes.pop(layer)
            reduce = model.scatterreduce if scatter else model.allreduce
            part = await reduce(grad, layer)
            del grad
            weights[layer], states[layer] = model.update(layer, part, weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    return schedule


@pytest.mark.sampled(1)
@pytest.mark.parametrize("slug", ["wsdp", "fsdp"])
def test_loading_again_instead_of_gathering_costs_the_third_star_of_a_classic(slug: str) -> None:
    result = played(slug, without_a_gather(again=True, scatter=slug == "fsdp"))
    assert result.report.error is None
    assert (result.report.meets_time, result.report.meets_memory) == (True, True)
    assert not result.report.is_steady
    assert (result.status, result.stars) == ("passed", 2)
    assert any("layers 0-5 twice" in note for note in result.notes)
    assert any(f"{result.report.lasting_peak:,} elements" in n for n in result.notes)
    assert f"{result.report.lasting_peak:,} elements" in result.text()


def test_loading_again_instead_of_gathering_does_not_pass_where_the_steady_peak_decides() -> None:
    """The same two targets, in a puzzle that is not one of the classics."""
    trace = run(without_a_gather(again=True, scatter=True), 6, 4, 4).trace
    goal = Goal("own", Size(6, 4, 4), 21, 2_400_000, steady=True)
    assert referee(trace, replace(goal, decides="star")).stars == 2
    report = referee(trace, goal)
    assert (report.status, report.stars, report.meets_memory) == ("over_target", 1, True)
    assert report.lasting_peak == 4_063_232


def test_loading_shards_twice_within_the_steady_peak_costs_nothing() -> None:
    """As in the original puzzle: what was loaded for the forward pass is loaded again for the backward pass."""

    async def schedule(model: Model) -> None:
        weights, states, activations, grads, _ = model.storage()
        mine = model.rank, model.RANKS
        activations[0] = model.get_activation([model.rank])
        for layer in range(model.LAYERS):
            weights[layer] = await model.allgather(model.load_weights(layer, *mine)[0], layer)
            activations[layer + 1] = model.forward(layer, activations[layer], weights.pop(layer))
        grads["out"] = model.loss(activations.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            part, states[layer] = model.load_weights(layer, *mine)
            weights[layer] = await model.allgather(part, layer)
            grad, grads["out"] = model.backward(layer, activations.pop(layer), grads["out"], weights.pop(layer))
            grad = await model.scatterreduce(grad, layer)
            weights[layer], states[layer] = model.update(layer, grad, part, states[layer])
            model.set_final_weight(layer, weights[layer])

    report = played("fsdp", schedule).report
    assert (report.status, report.is_steady, report.timesteps) == ("passed", True, 19.9)
    assert report.peak.memory < report.lasting_peak < 2_400_000
    assert not any(note.about == "reload" for note in report.notes)


def test_loading_whole_weights_and_cutting_them_at_once_is_allowed() -> None:
    async def cutting(model: Model) -> None:
        load = model.load_weights
        model.load_weights = lambda layer, *part: tuple(v.shard(*part) for v in load(layer))  # type: ignore[method-assign]
        await reference_of("fsdp")(model)

    result = played("fsdp", cutting)
    assert result.status == "passed"


# --- The lasting peak ---


def test_what_is_loaded_late_counts_in_the_lasting_peak() -> None:
    def schedule(model: Model, late: bool) -> None:
        weights, states, activations, _, _ = model.storage()
        weights[0], states[0] = model.load_weights(0)
        if not late:
            weights[1], states[1] = model.load_weights(1)
        for spare in range(4):
            activations["spare", spare] = model.get_activation([0])
        activations[1] = model.forward(0, activations["spare", 0], weights[0])
        for spare in range(4):
            del activations["spare", spare]
        if late:
            weights[1], states[1] = model.load_weights(1)
        model.forward(1, activations[1], weights[1])

    early = referee(run(lambda model: schedule(model, late=False), 2, 1, 1).trace)
    late = referee(run(lambda model: schedule(model, late=True), 2, 1, 1).trace)
    weight, activation = 512 * 512, 512 * 256
    assert (early.peak.memory, early.lasting_peak) == (4 * weight + 4 * activation, early.peak.memory)
    assert (late.peak.memory, late.lasting_peak) == (4 * weight + activation, early.peak.memory)


def test_the_lasting_peak_is_shown_next_to_the_one_that_is_compared() -> None:
    puzzle = PUZZLES["wsdp"]
    track = track_of("wsdp")
    figures = {"timesteps": 19.9, "makespan": 20.4, "peak_memory": 1_966_080}
    assert "2,359,296" not in track.words.figures_text(puzzle, figures)
    text = track.words.figures_text(puzzle, {**figures, "lasting_peak": 2_359_296})
    assert "1,966,080" in text
    assert "2,359,296 elements" in text
    assert track.words.figures_json({**figures, "lasting_peak": 2_359_296})["lasting_peak"] == 2_359_296
    assert "lasting_peak" not in track.words.figures_json(figures)


# --- Other sizes ---


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", PUZZLES)
def test_the_figures_of_the_references_at_other_sizes_are_theirs(slug: str) -> None:
    puzzle = PUZZLES[slug]
    assert {row.size for row in puzzle.reference_at} == {*puzzle.other_sizes}
    for size in puzzle.other_sizes:
        report = referee(run(reference_of(slug), *size, setting=puzzle.goal.setting).trace)
        assert puzzle.reference_scores(size) == (size, report.timesteps, report.peak.memory, report.traffic)


def elsewhere(slug: str, other: Any) -> Any:
    """The reference at the shown size, and another schedule at the other sizes."""

    async def schedule(model: Model) -> None:
        size = (model.LAYERS, model.BATCHES, model.RANKS)
        done = (reference_of(slug) if size == PUZZLES[slug].goal.size else other)(model)
        if hasattr(done, "__await__"):
            await done

    return schedule


def rank_0_does_all(model: Model) -> None:
    if model.rank == 0:
        reference_of("basic")(model)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", ["ddp", "fsdp", "pipeline", "gpipe", "pipeline_fsdp"])
def test_one_rank_that_does_all_at_another_size_is_noted(slug: str) -> None:
    result = played(slug, elsewhere(slug, rank_0_does_all))
    assert (result.status, result.stars) == ("passed", 2)
    (note,) = [note for note in result.notes if "one rank does all" in note]
    assert str(PUZZLES[slug].other_sizes[0].ranks) in note


def test_figures_far_behind_the_references_are_noted() -> None:
    async def dawdling(model: Model) -> None:
        for _ in range(20):
            await model.allreduce(model.fake_grad(0, []), 0)
        await reference_of("ddp")(model)

    result = played("ddp", elsewhere("ddp", dawdling))
    assert (result.status, result.stars) == ("passed", 2)
    (note,) = [note for note in result.notes if "the reference takes" in note]
    assert "takes 13.9 timesteps" in note
    assert "the reference takes 7.9" in note


def test_a_schedule_as_good_as_the_reference_is_not_noted() -> None:
    assert not any("reference" in note or "one rank" in note for note in played("gpipe", reference_of("gpipe")).notes)
    size = PUZZLES["gpipe"].other_sizes[0]
    known = PUZZLES["gpipe"].reference_scores(size)
    assert known is not None
    assert known.traffic
    assert not known.is_far_ahead_of(1.5 * known.timesteps, known.peak_memory // 2, known.traffic)
    assert not known.is_far_ahead_of(known.timesteps, known.peak_memory // 2, 3 * known.traffic)
    assert known.is_far_ahead_of(1.2 * known.timesteps, int(known.peak_memory * 1.2), known.traffic)
    assert known.is_far_ahead_of(known.timesteps, known.peak_memory, int(known.traffic * 2.1))
    assert PUZZLES["gpipe"].reference_scores(PUZZLES["gpipe"].goal.size) is None


# --- The puzzle's own kind ---

GOAL = Goal(
    "pipeline",
    PUZZLES["pipeline"].goal.size,
    66,
    3_300_000,
    records=(Record(39.4, 2_097_152, "a", PIPELINE), Record(24.0, 2_000_000, "b", SHARDED)),
    family=PIPELINE,
)


def test_a_pipeline_is_compared_with_pipelines_and_another_kind_with_all() -> None:
    assert [record.by for record in GOAL.records_to_beat(PIPELINE)] == ["a"]
    assert [record.by for record in GOAL.records_to_beat(SHARDED)] == ["a", "b"]
    assert [record.by for record in GOAL.records_to_beat(DATA_PARALLEL)] == ["a", "b"]
    assert [record.by for record in GOAL.open_front] == ["b"]


def test_a_record_of_another_kind_does_not_take_the_third_star() -> None:
    trace = run(module_of("solutions/records/gpipe_laps.py", "three_batches").pipeline, *GOAL.size).trace
    assert referee(trace, GOAL).stars == 3
    assert referee(trace, replace(GOAL, records=(Record(39.4, 2_097_151, "c", PIPELINE),))).stars == 2
    assert referee(trace, replace(GOAL, family=SHARDED)).stars == 2


def test_sharded_data_parallelism_may_pass_the_pipeline_and_is_called_what_it_is() -> None:
    result = played("pipeline", reference_of("fsdp"))
    assert (result.status, result.stars, result.report.family) == ("passed", 2, SHARDED)
    assert result.next_step.startswith("You have built ZeRO-3 (FSDP), ")
    kind = "This is sharded data parallelism, and the puzzle is about a pipeline."
    assert kind in replace(result, explains=True).next_step


def test_a_player_reads_the_best_of_the_own_kind_and_the_best_of_any() -> None:
    puzzle = replace(PUZZLES["pipeline"], goal=GOAL)
    figures = {"timesteps": 66.9, "peak_memory": 3_145_728}
    own = standing(puzzle, figures, 2, PIPELINE)
    assert "2,097,152 elements" in own
    assert "24 timesteps and 2,000,000" in own
    ddp = standing(PUZZLES["ddp"], {"timesteps": 5.1, "peak_memory": 1_835_008}, 2, DATA_PARALLEL)
    assert ddp.count("1,441,792 elements") == 1, "the best of its kind, which is also the best of any"
    best = standing(puzzle, {"timesteps": 39.4, "peak_memory": 2_097_152}, 3, PIPELINE)
    assert best.startswith("Three stars")
    assert "24 timesteps and 2,000,000" in best
    other = standing(puzzle, figures, 2, DATA_PARALLEL)
    assert "This is data parallelism" in other
    assert "24 timesteps" in other
    assert "Three stars" in standing(puzzle, {"timesteps": 20.0, "peak_memory": 1}, 3, SHARDED)
    assert "note" in standing(puzzle, {"timesteps": 20.0, "peak_memory": 1}, 2, PIPELINE)


# --- Ideas ---


def test_a_record_with_a_later_idea_is_shown_and_takes_no_star() -> None:
    result = played("basic", reference_of("basic"))
    assert (result.stars, PUZZLES["basic"].goal.beyond[0].peak_memory) == (3, 1_835_008)
    assert "(`grad_accum`): 16.5" in result.next_step


@pytest.mark.parametrize("slug", ["basic", "pipeline"])
def test_with_an_idea_that_comes_later_a_schedule_has_three_stars_too(slug: str) -> None:
    record = PUZZLES[slug].goal.beyond[0]
    assert played(slug, getattr(module_of(*record.file_and_variant), slug)).stars == 3


def test_what_only_the_third_star_needs_is_named_on_a_pass_before_any_record() -> None:
    """FSDP that all-reduces: its gradients are not summed in shards, and the targets of two stars do not see that."""
    scatter = "model.scatterreduce(grad_weights[layer], layer)"
    whole = f"({scatter.replace('scatterreduce', 'allreduce')}).shard(model.rank, model.RANKS)"
    result = played("fsdp", altered("fsdp", ((f"await {scatter}", f"(await {whole[1:]}"),)))
    assert (result.status, result.stars) == ("passed", 2)
    assert "4,718,592" in result.next_step
    assert "`scatterreduce`" in result.next_step

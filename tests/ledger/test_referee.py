"""The referee: exact figures for the eight classics, the same in every order, and honest about memory."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from lib import COSTS, Costs, DeadlockError, Goal, Model, Op, PuzzleError, Record, Setting, Size, Trace, referee, run
from lib.pipelines import gpipe, pipeline
from tests.screens.texts import approved
from tests.support import CLASSICS, Classic, judge
from tests.support.refusals import Refused

UNIT = 512 * 512
"""Elements of one weight."""


@pytest.fixture(scope="module", params=CLASSICS, ids=lambda classic: classic.slug)
def classic(request: Any) -> Classic:
    return request.param


def test_each_part_of_a_final_weight_can_be_set_by_itself() -> None:
    def in_parts(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        parts = [model.load_weights(0, shard, 2) for shard in range(2)]
        inputs[0] = model.get_activation(range(model.BATCHES))
        whole = parts[0][0].combine(parts[1][0])
        grads[1] = model.loss(model.forward(0, inputs[0], whole))
        weight_grads[0], _ = model.backward(0, inputs[0], grads[1], whole)
        for shard in range(2):
            weights[shard], states[shard] = model.update(0, weight_grads[0], *parts[shard])
            model.set_final_weight(0, weights[shard])
        assert model.final_weights[0].is_complete()

    assert judge(in_parts, layers=1).error is None


def test_the_run_is_the_same_in_every_order_of_starting(classic: Classic) -> None:
    first = run(classic.solution, *classic.size)
    shuffled = list(range(classic.size.ranks))
    for order in (list(reversed(shuffled)), random.Random(7).sample(shuffled, len(shuffled))):
        again = run(classic.solution, *classic.size, order)
        assert again.trace == first.trace
        assert [model.log for model in again.models] == [model.log for model in first.models]


def test_the_clock_and_the_memory_of_the_log_are_those_of_the_report(classic: Classic) -> None:
    outcome = run(classic.solution, *classic.size)
    report = referee(outcome.trace)
    for model, rank in zip(outcome.models, report.ranks):
        assert [event.memory for event in model.log] == list(rank.memory[:-1])
        assert model.memory() == rank.memory[-1]
    assert max(event.time for model in outcome.models for event in model.log) == report.timesteps
    assert max(event.time + event.length for model in outcome.models for event in model.log) == report.makespan


def test_the_critical_path_leads_without_a_gap_from_the_start_to_the_end(classic: Classic) -> None:
    trace = run(classic.solution, *classic.size).trace
    report = referee(trace)
    path = [trace.ranks[rank][i] for rank, i in report.critical_path]
    assert path[0].start == 0
    assert path[-1].end == report.makespan * 10
    assert all(before.end == after.start for before, after in pairwise(path))


# --- Figures from papers ----------------------------------------------------------------------------


@pytest.mark.parametrize(("stages", "batches"), [(4, 4), (4, 8), (2, 6)])
def test_gpipe_s_bubble_is_that_of_the_paper(stages: int, batches: int) -> None:
    """(K-1)/(M+K-1) of the time, with stages of equal work (Huang et al. 2019, section 2.3), where messages and updates
    take no time."""
    report = referee(run(pipeline(gpipe), stages, batches, stages, setting=Setting("stages")).trace)
    assert report.bubble == pytest.approx((stages - 1) / (batches + stages - 1), abs=1e-9)


# --- Honest memory ----------------------------------------------------------------------------------


def step(model: Model, keep: Any) -> None:
    """Standard training; `keep` decides how an input activation is held from forward to backward."""
    weights, states, activations, grads, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        keep.put(activations, layer)
    grads[0] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        keep.get(activations, layer)
        weight_grads[layer], grads[0] = model.backward(layer, activations[layer], grads[0], weights[layer])
        del activations[layer]
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])


class Stored:
    def put(self, activations: Any, layer: int) -> None: ...

    def get(self, activations: Any, layer: int) -> None: ...


class Hidden(dict[int, Any]):
    def put(self, activations: Any, layer: int) -> None:
        self[layer] = activations.pop(layer)

    def get(self, activations: Any, layer: int) -> None:
        activations[layer] = self.pop(layer)


def test_values_in_a_private_dictionary_are_charged_until_their_last_use_and_named() -> None:
    honest = judge(lambda model: step(model, Stored()), layers=3)
    hiding = judge(lambda model: step(model, Hidden()), layers=3)
    assert hiding.ranks[0].memory == honest.ranks[0].memory
    assert not any("kept outside" in note.text for note in honest.notes)
    assert next(note.text for note in hiding.notes).startswith(
        "rank 0 kept outside the dictionaries, where it takes memory until its last use: the activation of "
        "layer 0 and 2 more (line "
    )


def test_emptying_the_storage_around_a_call_changes_nothing() -> None:
    def emptying(model: Model) -> None:
        def aside(call: Any) -> Any:
            def without_storage(*args: Any) -> Any:
                held = [(storage, dict(storage)) for storage in model.storage()]
                for storage, _ in held:
                    storage.clear()
                made = call(*args)
                for storage, content in held:
                    storage.update(content)
                return made

            return without_storage

        for name in ("forward", "loss", "backward", "update"):
            object.__setattr__(model, name, aside(getattr(model, name)))
        step(model, Stored())

    assert judge(emptying).ranks[0].memory == judge(lambda model: step(model, Stored())).ranks[0].memory


def test_memory_held_after_the_last_event_counts() -> None:
    def hoarding(model: Model) -> None:
        step(model, Stored())
        for i in range(20):
            model.weights["spare", i], _ = model.load_weights(0, 0, 2)

    report = judge(hoarding)
    left_by_the_step = 4 * UNIT + UNIT  # weights and states, and the gradient of the input
    assert report.peak == (left_by_the_step + 10 * UNIT, 0, report.makespan)


def test_deleting_a_final_weight_does_not_make_it_free() -> None:
    def deleting(model: Model) -> None:
        step(model, Stored())
        model.weights.clear()

    assert judge(deleting).ranks[0].memory == judge(lambda model: step(model, Stored())).ranks[0].memory


# --- Notes and stars --------------------------------------------------------------------------------


def test_loading_the_same_weights_twice_costs_a_star() -> None:
    def reloading(model: Model) -> None:
        model.load_weights(0, 3, 4)
        step(model, Stored())

    report = judge(reloading)
    assert report.stars == 2
    approved("referee", "loading the same weights twice costs a star", report.notes[0].text, "rank 0 loaded the")


def test_loading_the_same_weights_to_a_tier_twice_is_a_reload() -> None:
    async def streaming(model: Model) -> None:
        for batch in range(2):
            weight = await model.fetch(model.load_weights(0, tier="host")[0])
            model.set_output(model.forward(0, model.get_activation([batch]), weight))

    report = referee(run(streaming, 1, 2, 1, setting=Setting(COSTS["streams"], task="infer")).trace)
    assert report.error is None
    reload, missing = [note for note in report.notes if note.costs_a_star]
    assert (reload.about, missing.about) == ("reload", "missing")
    assert "layer 0 twice" in reload.text
    approved("referee", "loading the same weights to a tier twice is a reload", missing.text, "than at the start,")


def test_a_tiers_peak_that_several_ranks_share_is_the_first_ones() -> None:
    async def each(model: Model) -> None:
        weight = await model.fetch(model.load_weights(0, tier="host")[0])
        model.set_output(model.forward(0, model.get_activation([model.rank]), weight))

    report = referee(run(each, 1, 2, 2, setting=Setting(COSTS["streams"], task="infer")).trace)
    assert report.error is None
    assert (report.peaks["host"].rank, report.peaks["host"].memory > 0) == (0, True)


def test_what_inference_loads_later_is_needed_for_the_next_batches() -> None:
    def late(model: Model) -> None:
        out = model.get_activation([0])
        for layer in range(3):
            out = model.forward(layer, out, model.load_weights(layer)[0])
        model.set_output(out)

    report = referee(run(late, 3, 1, 1, setting=Setting(task="infer")).trace)
    assert (report.error, report.lasting_peak) == (None, 3 * UNIT + UNIT // 2)
    (note,) = [note for note in report.notes if note.about == "steady"]
    assert f"peak would be {3 * UNIT + UNIT // 2:,} elements" in note.text
    assert "states" not in note.text


APART = ([(0, 2), (1, 2)], [(0, 4), (1, 2), (1, 4)], [(2, 3), (0, 3)])
OVERLAPPING = ([(0, 1), (3, 4)], [(1, 2), (2, 4)], [(1, 4), (0, 2)], [(0, 1), (3, 4), (0, 4)])


@pytest.mark.parametrize("parts", [*APART, *OVERLAPPING])
def test_loading_overlapping_shards_is_loading_twice(parts: list[tuple[int, int]]) -> None:
    def loading(model: Model) -> None:
        for part in parts:
            model.load_weights(0, *part)

    assert len(referee(run(loading, 1, 1, 1).trace).notes) == (parts in OVERLAPPING)


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("throwing an updated optimizer state away", "discarded the updated optimizer"),
        ("an optimizer state that was used and then lost", "the updated optimizer state"),
    ],
)
def test_an_updated_optimizer_state_that_is_lost_costs_a_star(how: str, words: str) -> None:
    def careless(model: Model) -> None:
        step(model, Stored())
        if "used" in how:
            model.opt_states[1].shard(0, 2)
        del model.opt_states[1]

    report = judge(careless)
    assert report.stars == 2
    approved("referee", f"{how} costs a star", report.notes[0].text, words)


def test_ending_with_less_than_one_began_with_costs_a_star() -> None:
    async def owner_of_a_part(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        weights[0], whole_state = model.load_weights(0)
        states[0] = whole_state.shard(model.rank, model.RANKS)
        inputs[0] = model.get_activation([model.rank])
        inputs[1] = model.forward(0, inputs[0], weights[0])
        grads[1] = model.loss(inputs[1])
        weight_grads[0], grads[0] = model.backward(0, inputs[0], grads[1], weights[0])
        weight_grads[0] = await model.scatterreduce(weight_grads[0], 0)
        part = weights[0].shard(model.rank, model.RANKS)
        weights[0], states[0] = model.update(0, weight_grads[0], part, states[0])
        model.set_final_weight(0, weights[0])

    async def zero_1(model: Model) -> None:
        await owner_of_a_part(model)
        model.weights[0] = await model.allgather(model.weights[0], 0)

    partial, whole = (judge(schedule, layers=1, ranks=2) for schedule in (owner_of_a_part, zero_1))
    assert (partial.stars, whole.stars, whole.notes) == (2, 3, ())
    assert partial.notes[0].text.startswith("ranks 0, 1 ended with less of the weight of layer 0 than")


def test_a_message_is_no_place_to_keep_things() -> None:
    async def parking(model: Model) -> None:
        if model.rank == 1:
            await model.allreduce(model.fake_grad(0, []), 0)
            await model.pass_to(0, await model.receive())
            return
        weights, states, inputs, grads, weight_grads = model.storage()
        weights[0], states[0] = model.load_weights(0)
        await model.pass_to(1, states[0])
        del states[0]
        inputs[0] = model.get_activation(range(model.BATCHES))
        inputs[1] = model.forward(0, inputs[0], weights[0])
        grads[1] = model.loss(inputs[1])
        weight_grads[0], grads[0] = model.backward(0, inputs[0], grads[1], weights[0])
        weight_grads[0] = await model.allreduce(weight_grads[0], 0)
        inputs.clear()
        grads.clear()
        states[0] = await model.receive()
        weights[0], states[0] = model.update(0, weight_grads[0], weights[0], states[0])
        model.set_final_weight(0, weights[0])

    report = judge(parking, layers=1, batches=4, ranks=2)
    assert (report.stars, report.peak.memory) == (2, 10 * UNIT)
    approved("referee", "a message is no place to keep things", report.second_step, "in a second step")
    assert report.second_step.endswith("because a message takes memory until it is read")


def test_a_state_is_there_before_it_is_loaded() -> None:
    async def borrowing(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        if model.rank == 1:
            weights[0], states[0] = model.load_weights(0)
            await model.pass_to(0, weights[0])
            weight_grads[0] = await model.receive()
        else:
            weights["borrowed"] = await model.receive()
            inputs[0] = model.get_activation(range(model.BATCHES))
            inputs[1] = model.forward(0, inputs[0], weights["borrowed"])
            grads[1] = model.loss(inputs[1])
            weight_grads[0], grads[0] = model.backward(0, inputs[0], grads[1], weights["borrowed"])
            inputs.clear()
            grads.clear()
            del weights["borrowed"]
            await model.pass_to(1, weight_grads[0])
            weights[0], states[0] = model.load_weights(0)
        weights[0], states[0] = model.update(0, weight_grads[0], weights[0], states[0])
        model.set_final_weight(0, weights[0])

    report = judge(borrowing, layers=1, batches=4, ranks=2)
    assert (report.stars, report.peak.memory) == (2, 7 * UNIT)
    assert report.second_step.startswith("in a second step the peak would be 2,359,296 elements (rank 0)")
    assert report.second_step.endswith("because it begins with everything that this run loads later")


STARS = [((17, 2_600_000), 3), ((17, 2_500_000), 1), ((15, 2_600_000), 1)]


@pytest.mark.parametrize(("targets", "stars"), STARS)
def test_stars_for_targets(targets: tuple[int, int], stars: int) -> None:
    basic = CLASSICS[0]
    report = referee(run(basic.solution, *basic.size).trace, Goal("basic", basic.size, *targets))
    assert (report.stars, report.status) == (stars, "passed" if stars > 1 else "over_target")


RECORDS = [(16.5, 2_621_440, 3), (16.5, 2_621_439, 2), (16.4, 2_621_440, 2), (16.0, 9_000_000, 3), (99.0, 1, 3)]


@pytest.mark.parametrize(("timesteps", "memory", "stars"), RECORDS)
def test_the_third_star_is_for_being_beaten_by_no_record(timesteps: float, memory: int, stars: int) -> None:
    basic = CLASSICS[0]
    goal = Goal("basic", basic.size, 17, 2_600_000, (Record(timesteps, memory),))
    assert referee(run(basic.solution, *basic.size).trace, goal).stars == stars


# --- Traces that did not come from a run ------------------------------------------------------------


def test_an_empty_trace_is_incomplete_not_an_accident() -> None:
    report = referee(Trace(Size(1, 1, 2), ((), ())))
    assert (report.status, report.error and report.error.reason, report.peak.memory) == ("failed", "incomplete", 0)


@pytest.mark.parametrize("size", [Size(1, 4, 1), Size(2, 2, 1), Size(2, 4, 2)])
def test_a_puzzle_is_judged_at_its_own_size(size: Size) -> None:
    basic = CLASSICS[0]
    report = referee(run(basic.solution, *size).trace, basic.goal)
    Refused("other size", size=size, slug="basic", goal_size=basic.size).require(report.error)


def test_a_puzzle_is_judged_by_its_own_costs() -> None:
    basic = CLASSICS[0]
    trace = run(basic.solution, *basic.size).trace
    free = Trace(trace.size, trace.ranks, Setting(Costs("free", hidden=1, length=1, ticks={})))
    Refused("other costs", slug="basic").require(referee(free, basic.goal).error)


def test_a_forged_trace_that_is_legal_is_a_solution() -> None:
    gpipe = CLASSICS[6]
    trace = run(gpipe.solution, *gpipe.size).trace
    forged = Trace(trace.size, tuple(tuple(Op(*op) for op in ops) for ops in trace.ranks))
    assert referee(forged, gpipe.goal).status == "passed"


def test_a_message_that_nobody_reads_is_refused() -> None:
    async def shouting(model: Model) -> None:
        step(model, Stored())
        if model.rank == 0:
            await model.pass_to(1, "hello")

    with Refused("never received", place="pass_to(1)", to=1):
        raise judge(shouting, ranks=2).error  # type: ignore[misc]


def test_a_trace_that_cannot_happen_is_a_deadlock() -> None:
    receive = Op("receive", 0, 2, args=(1,))
    report = referee(Trace(Size(1, 1, 2), ((receive,), ())))
    assert isinstance(report.error, DeadlockError)
    Refused("nobody can move", waits={0: "receive(1)"}, absent={1: "has returned"}).require(report.error)


@pytest.mark.parametrize(
    "op",
    [
        Op("dance", 0, 0),
        Op("loss", 0, 0, layer=1, inputs=(0,)),
        Op("forward", 0, 10, layer=0, inputs=(0,)),
        Op("load_weights", 0, 0, layer=0, outputs=(0, 1)),
        Op("load_weights", 0, 0, layer=0, outputs=(1, 2), args=(0, 1)),
        Op("load_weights", 0, 3, layer=0, outputs=(0, 1), args=(0, 1)),
        Op("load_weights", 0, 0, layer=0, outputs=(0,), args=(0, 1)),
        Op("set_final_weight", 0, 0, layer=0, inputs=(5,)),
        Op("pass_to", 0, 2, args=("0",)),
        Op("delete", 0, 0, args=("weights", [1])),
    ],
)
def test_a_malformed_record_is_named(op: Op) -> None:
    report = referee(Trace(Size(1, 1, 1), ((op,),)))
    assert isinstance(report.error, PuzzleError)
    assert str(report.error).startswith("rank 0, t=0, ")

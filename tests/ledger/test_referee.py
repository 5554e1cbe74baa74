"""The referee: exact figures, honest memory, bandwidth, notes and stars, and records of storing."""

import random
from collections.abc import Callable
from dataclasses import replace as changed
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Costs,
    DeadlockError,
    Goal,
    Model,
    Op,
    PuzzleError,
    Record,
    Report,
    Setting,
    Size,
    Trace,
    Weight,
    referee,
    run,
)
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import NO_BATCHES
from lib.ledger.traffic import Span, most_in_window
from lib.pipelines import gpipe, pipeline
from solutions.fsdp_prefetch import fsdp_prefetch
from tests.screens.texts import approved
from tests.support import CLASSICS, Classic, finished, judge
from tests.support.examples import examples
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


# === The peak bandwidth of a run ===


def within(spans: list[Span], begin: Fraction, window: Fraction) -> Fraction:
    """What is sent in one window, span by span."""
    end, total = begin + window, Fraction()
    for start, stop, elements in spans:
        if start == stop:
            total += elements * (begin <= start <= end)
        else:
            total += Fraction(elements, stop - start) * max(Fraction(), min(end, stop) - max(begin, start))
    return total


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(40))
def test_no_window_has_more(seed: int) -> None:
    drawn = random.Random(seed)
    starts = [drawn.randrange(12) for _ in range(drawn.randrange(1, 7))]
    spans = [(start, start + drawn.randrange(5), drawn.randrange(10)) for start in starts]
    window = Fraction(drawn.randrange(1, 12), drawn.choice((1, 2)))
    every = [within(spans, Fraction(begin, 4), window) for begin in range(-60, 80)]
    assert most_in_window(spans, window) == max(every)


def test_calls_at_once_add_up_and_calls_apart_do_not() -> None:
    assert most_in_window([(0, 4, 8), (2, 4, 6)], Fraction(2)) == 4 + 6
    assert most_in_window([(0, 4, 8), (6, 10, 8)], Fraction(4)) == 8
    assert most_in_window([(3, 3, 5), (3, 3, 1), (9, 9, 2)], Fraction(1, 2)) == 6
    assert most_in_window([], Fraction(1)) == 0


async def two_sums(model: Model) -> None:
    weights = [model.load_weights(layer) for layer in (0, 1)]
    inp = model.get_activation([model.rank])
    out = model.forward(0, inp, weights[0][0])
    grad = model.loss(model.forward(1, out, weights[1][0]))
    grad_1, grad = model.backward(1, out, grad, weights[1][0])
    grad_0, _ = model.backward(0, inp, grad, weights[0][0])
    for layer, one in ((1, grad_1), (0, grad_0)):
        weight, _ = model.update(layer, await model.allreduce(one, layer), *weights[layer])
        model.set_final_weight(layer, weight)


def report() -> Report:
    outcome = finished(two_sums, 2, 2, 2)
    return referee(outcome.trace)


def test_a_call_is_spread_evenly_over_its_time() -> None:
    """An all-reduce takes 0.3 steps and an update 0.5. Each rank sends 262,144 elements in an all-reduce."""
    found = report()
    assert found.traffic == 2 * 262_144
    assert found.wire(0.3) == 262_144
    assert found.wire(0.1) == pytest.approx(262_144 / 3)
    assert found.wire(0.6) == 262_144
    assert found.wire(Fraction(7, 8)) == pytest.approx(262_144 * (1 + 0.075 / 0.3))
    assert found.wire(1000) == found.traffic


@pytest.mark.parametrize("window", [0, -1, float("inf"), float("nan"), "1", None, True])
def test_a_window_is_a_time(window: Any) -> None:
    with Refused("no window"):
        report().wire(window)


# === Records of storing and deleting ===


# What is wrong with a record is refused, and of several refusals the first is given. The referee follows what ranks
# store when all have gone as far as they can. So a trace is also executed with every record checked where it comes:
# both must refuse the same, and leave the ranks at the same operations.

BASIC = run(CLASSICS[0].solution, 2, 4, 1).trace
FSDP = next(classic for classic in CLASSICS if classic.slug == "fsdp")
TRACES = [
    BASIC,
    run(FSDP.solution, 2, 3, 3).trace,
    run(next(classic for classic in CLASSICS if classic.slug == "pipeline").solution, 3, 2, 3).trace,
    run(fsdp_prefetch, 3, 2, 2, setting=Setting(COSTS["overlap"])).trace,
]


def stores(trace: Trace, name: str = "store", rank: int = 0) -> int:
    """The index of a rank's first operation of a name."""
    return next(i for i, op in enumerate(trace.ranks[rank]) if op.name == name)


def with_row(trace: Trace, at: int, row: Op, rank: int = 0) -> Trace:
    ops = list(trace.ranks[rank])
    ops[at] = row
    return changed(trace, ranks=(*trace.ranks[:rank], tuple(ops), *trace.ranks[rank + 1 :]))


WRONG: list[tuple[dict[str, Any], Refused]] = [
    ({"start": 1, "end": 1}, Refused("takes no time", name="store")),
    ({"end": 1}, Refused("takes no time", name="store")),
    ({"layer": 0}, Refused("takes no time", name="store")),
    ({"batches": frozenset({0})}, Refused("takes no time", name="store")),
    ({"outputs": (2,)}, Refused("takes no time", name="store")),
    ({"args": ("weights", 0, 0)}, Refused("takes no time", name="store")),
    ({"inputs": [0]}, Refused("takes no time", name="store")),
    ({"inputs": ()}, Refused("senseless record")),
    ({"inputs": (99,)}, Refused("stored value not made", number=99)),
    ({"inputs": (-1,)}, Refused("stored value not made", number=-1)),
    ({"inputs": (4,)}, Refused("stored value not made", number=4)),
    ({"inputs": (1,)}, Refused("wrong dictionary", dictionary="weights", kind="an optimizer state")),
    ({"args": ("attic", 0)}, Refused("wrong dictionary", dictionary="attic", kind="a weight")),
    ({"args": ("weights", [])}, Refused("senseless record", why="unhashable type: 'list'")),
    ({"name": "delete", "inputs": ()}, Refused("nothing stored")),
    ({"name": "delete"}, Refused("nothing stored")),
]


@pytest.mark.parametrize(("wrong", "expected"), WRONG, ids=lambda given: str(given)[:50])
def test_a_wrong_record_is_refused_with_its_place(wrong: dict[str, Any], expected: Refused) -> None:
    at = stores(BASIC)
    error = referee(with_row(BASIC, at, BASIC.ranks[0][at]._replace(**wrong))).error
    assert error is not None
    expected.require(error)
    assert str(error).startswith("rank 0, t=0")


def test_a_deleted_value_is_deleted_once() -> None:
    at = stores(BASIC, "delete")
    ops = BASIC.ranks[0]
    error = referee(changed(BASIC, ranks=((*ops[: at + 1], ops[at], *ops[at + 1 :]),))).error
    Refused("nothing stored").require(error)


def test_what_a_call_makes_is_stored_after_it_is_awaited() -> None:
    trace = TRACES[-1]
    ops = trace.ranks[0]
    at = next(i for i, op in enumerate(ops) if op.name == "allgather" and ops[i + 1].name != "await")
    clock = next(op.start for op in ops[at + 1 :] if op.name not in ("allgather", "store", "delete"))
    early = Op("store", clock, clock, None, NO_BATCHES, ops[at].outputs, (), ("weights", "early"))
    awaited = next(i for i, op in enumerate(ops) if op.name == "await" and op.args == (at,))
    moved = [op._replace(args=(op.args[0] + (op.args[0] > at),)) if op.name == "await" else op for op in ops]
    error = referee(changed(trace, ranks=((*moved[: at + 1], early, *moved[at + 1 :]), *trace.ranks[1:]))).error
    assert awaited > at + 1
    Refused("still pending").require(error)


def test_what_no_operation_made_is_not_stored_in_a_puzzle() -> None:
    first, *others = BASIC.ranks[0]
    made = max(n for op in BASIC.ranks[0] for n in op.outputs) + 1
    end = others[-1].end
    ops = (first, *others, Op("given", end, end, outputs=(made,), args=(Weight(0, 2, 0),)))
    stored = Op("store", end, end, None, NO_BATCHES, (made,), (), ("weights", "given"))
    trace = changed(BASIC, ranks=((*ops, stored),))
    assert referee(trace).error is None
    Refused("made by hand").require(referee(trace, CLASSICS[0].goal).error)


def test_of_two_refusals_the_first_is_given() -> None:
    at = stores(BASIC)
    ops = list(BASIC.ranks[0])
    computed = stores(BASIC, "forward")
    ops[computed] = ops[computed]._replace(inputs=(99, 0))
    Refused("value not made", number=99).require(referee(changed(BASIC, ranks=(tuple(ops),))).error)
    ops[at] = ops[at]._replace(layer=0)
    assert at < computed
    Refused("takes no time", name="store").require(referee(changed(BASIC, ranks=(tuple(ops),))).error)


@pytest.mark.parametrize(("after", "expected"), [(0, Refused("values not numbered")), (1, Refused("senseless record"))])
def test_a_value_is_numbered_by_a_whole_number(after: int, expected: Refused) -> None:
    ops = BASIC.ranks[0]
    final, stored = ops[stores(BASIC, "set_final_weight")], ops[stores(BASIC)]
    end: dict[str, Any] = {"start": ops[-1].end, "end": ops[-1].end}
    again = final._replace(**{**end, "inputs": (float(final.inputs[0]),)})
    error = referee(changed(BASIC, ranks=((*ops, again, *[stored._replace(**end)] * after),))).error
    expected.require(error)


def other_record(draw: Random, op: Op, made: int) -> Op:
    """A record with one column changed."""
    changes: list[Callable[[], dict[str, Any]]] = [
        lambda: {"inputs": (draw.randrange(-1, made + 1),)},
        lambda: {"inputs": tuple(draw.randrange(made + 1) for _ in op.inputs)},
        lambda: {"args": (draw.choice(["weights", "opt_states", "activations"]), draw.randrange(3))},
        lambda: {"name": draw.choice(["store", "delete", "forward", "add"])},
        lambda: {"start": op.start + 1, "end": op.end + 1},
        lambda: {"layer": draw.choice([None, 0, 1])},
        lambda: {"inputs": ()},
    ]
    return op._replace(**draw.choice(changes)())


def altered(trace: Trace, draw: Random) -> Trace:
    """One to three records changed, dropped, repeated or moved; most of them store or delete."""
    ranks = [list(ops) for ops in trace.ranks]
    for _ in range(draw.randrange(1, 4)):
        ops = draw.choice(ranks)
        places = [i for i, op in enumerate(ops) if op.name in ("store", "delete") or draw.random() < 0.1]
        if not places:
            continue
        at, kind = draw.choice(places), draw.random()
        if kind < 0.6:
            ops[at] = other_record(draw, ops[at], sum(len(op.outputs) for op in ops))
        elif kind < 0.7:
            ops.insert(at, ops[at])
        elif kind < 0.8:
            ops.insert(draw.randrange(len(ops)), ops.pop(at))
        else:
            del ops[at]
    return changed(trace, ranks=tuple(map(tuple, ranks)))


def outcome(trace: Trace, in_order: bool) -> tuple[str, list[int], list[Any]]:
    """What is refused, how far each rank has come, and what it has stored by then."""
    recomputation = Recomputation(trace)
    if in_order:
        recomputation._begin(in_order=True)
    refused = ""
    try:
        recomputation.run()
    except PuzzleError as why:
        refused = f"{type(why).__name__} {why}"
    return (
        refused,
        [rank.at for rank in recomputation.ranks],
        [rank.liveness.lifetimes() for rank in recomputation.ranks],
    )


@examples(400)
@given(st.sampled_from(range(len(TRACES))), st.integers(0, 10**9))
def test_storage_that_is_followed_later_is_judged_as_if_in_order(which: int, seed: int) -> None:
    trace = altered(TRACES[which], Random(seed))
    assert outcome(trace, in_order=False) == outcome(trace, in_order=True)


def test_altered_records_are_refused_and_accepted() -> None:
    found = {
        outcome(altered(trace, Random(seed)), False)[0].partition(" ")[0] for trace in TRACES for seed in range(20)
    }
    assert found >= {"", "RuleError", "TraceError"}

"""Updates: clipping by the global norm, weights that lag behind the data, and outer steps."""

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest

import drawing
from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    Delta,
    Model,
    OuterState,
    PuzzleError,
    Scalar,
    Setting,
    Size,
    TraceError,
    Weight,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.engine.replay.comparison import trained
from lib.engine.replay.replay import replay
from lib.engine.replay.workload import Workload
from lib.ledger.costs import CLASSIC, Tier
from lib.pipelines import one_f_one_b, pipeline
from lib.pipelines.bounds import memory_bound, time_bound
from solutions.streaming_diloco import streaming_diloco
from solutions.weight_versions import weight_versions
from tests.catalog.lessons.families.replicas import all_together, one_by_one, outer_steps
from tests.oracles.programs.outer import Program
from tests.screens.texts import approved
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules import clipping
from tests.support.schedules.clipping import Rank

# === Clipping by the global norm ===


CLIPPING = Setting(clip=True)


# --- What is refused ---


async def some_batches(rank: Rank) -> None:
    rank.model.norm(0, rank.gradients([0])[0])


async def norm_of_another_layer(rank: Rank) -> None:
    rank.model.norm(1, rank.gradients([0, 1])[0])


async def of_a_weight(rank: Rank) -> None:
    rank.model.norm(0, rank.weights[0])  # type: ignore[arg-type]


async def some_layers(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0]))


async def some_shards(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0].shard(1, 2)))


async def no_norm(rank: Rank) -> None:
    rank.update(rank.gradients([0, 1]), None)


async def a_gradient(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.update(grads, grads[0])


async def added_twice(rank: Rank) -> None:
    norm = rank.model.norm(0, rank.gradients([0, 1])[0])
    norm + norm


async def norm_reduced_twice(rank: Rank) -> None:
    await rank.model.allreduce(rank.model.norm(0, rank.gradients([0, 1])[0]), 0)


async def shard_and_layer(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    rank.model.norm(0, grads[0].shard(1, 2)) + rank.model.norm(0, grads[0])


async def another_step(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    norm = rank.model.norm(0, grads[0]) + rank.model.norm(1, grads[1])
    rank.update(grads, norm)
    rank.update(rank.gradients([0, 1], 1), norm)


async def steps_mixed(rank: Rank) -> None:
    grads = rank.gradients([0, 1])
    norm = rank.model.norm(0, grads[0])
    rank.update(grads, norm + rank.model.norm(1, grads[1]))
    norm + rank.model.norm(1, rank.gradients([0, 1], 1)[1])


async def gathered(rank: Rank) -> None:
    await rank.model.allgather(rank.model.norm(0, rank.gradients([0, 1])[0]), 0)


REFUSED_NORMS: dict[Callable[[Rank], Any], Refused] = {
    some_batches: Refused("norm of some batches", batches="batch 0 of 2", missing="batch 1"),
    norm_of_another_layer: Refused("norm of another layer", layer=1),
    of_a_weight: Refused(
        "wrong kind for use", use="grad", kind="a weight gradient", value="the weight of layer 0, unsharded, step 0"
    ),
    some_layers: Refused("partial norm", norm="the layers {0} of 2"),
    some_shards: Refused("partial norm", norm="shards {1} of 2 of layer 0"),
    no_norm: Refused("no scale"),
    a_gradient: Refused("scale no norm", scale="the weight gradient of layer 0, batches 0, 1 of 2, unsharded"),
    added_twice: Refused("in both", thing="layer", number=0, both="both the first value and the second value"),
    norm_reduced_twice: Refused("in both", thing="layer", number=0, both="both rank 0 and rank 1"),
    shard_and_layer: Refused("in both", thing="shard", number=1, both="both the first value and the second value"),
    another_step: Refused(
        "norm of another step",
        scale="norm of the layers {0, 1} of 2",
        grad="weight gradient of layer 0, batches 0, 1 of 2, unsharded, step 1",
    ),
    steps_mixed: Refused(
        "values differ",
        verb="sum",
        differ="step",
        who="the first value",
        first="norm of the layers {0} of 2",
        other="norm of the layers {1} of 2, step 1",
    ),
    gathered: Refused("no shards to gather"),
}


def refused_norm(wrong: Callable[[Rank], Any], **changes: Any) -> PuzzleError | None:
    async def schedule(model: Model) -> None:
        await wrong(Rank(model))

    return run(schedule, 2, 2, 2, setting=Setting(**{"steps": 2, "clip": True, **changes})).error


@pytest.mark.parametrize("wrong", REFUSED_NORMS)
def test_what_a_norm_cannot_be_is_refused_in_words(wrong: Callable[[Rank], Any]) -> None:
    REFUSED_NORMS[wrong].require(refused_norm(wrong))


async def older_weights(rank: Rank) -> None:
    first = rank.weights[:]
    grads = rank.gradients([0, 1])
    rank.update(grads, rank.model.norm(0, grads[0]) + rank.model.norm(1, grads[1]))
    old = [*rank.weights]
    rank.weights = first
    late = rank.gradients([0, 1], 1)
    rank.weights = old
    new = rank.gradients([0, 1], 1)
    rank.update(new, rank.model.norm(0, late[0]) + rank.model.norm(1, late[1]))


def test_the_norm_is_of_gradients_of_the_same_version() -> None:
    Refused("norm of another step").require(refused_norm(older_weights, lag=1))


@pytest.mark.parametrize("wrong", [some_batches, a_gradient])
def test_where_nothing_is_clipped_there_is_no_norm(wrong: Callable[[Rank], Any]) -> None:
    call = "norm" if wrong is some_batches else "scale="
    Refused("no clipping", call=call).require(refused_norm(wrong, clip=False))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"clip": 1}, Refused("not boolean", name="clip", got=1)),
        ({"clip": True, "task": "local"}, Refused("clip without training")),
    ],
)
def test_a_setting_with_clipping_that_cannot_be_is_refused(fields: Any, expected: Refused) -> None:
    with expected:
        Setting(**fields)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ((2, 0, {0}, 3), Refused("no norm", layers=2, total=3)),
        ((2, 0, set(), 2), Refused("no norm", layers=2, total=2)),
        ((2, 0, {2}, 2), Refused("does not exist", thing="shard", number=2)),
        ((2, 1, {0}, 2, 1), Refused("version not older", older=1, step=1)),
    ],
)
def test_an_impossible_norm_is_refused(label: Any, expected: Refused) -> None:
    with expected:
        Scalar(*label)


# --- Time, memory and traffic ---


def test_a_norm_is_one_element_and_takes_the_time_of_an_all_reduce() -> None:
    unclipped = referee(run(clipping.pipeline, 2, 2, 2, setting=Setting()).trace)
    clipped = referee(run(clipping.pipeline, 2, 2, 2, setting=CLIPPING).trace)
    assert clipped.error is unclipped.error is None
    assert round(clipped.makespan - unclipped.makespan, 9) == 0.3
    assert clipped.ranks[0].memory[-2] - unclipped.ranks[0].memory[-2] == 1  # when the update starts
    assert clipped.traffic - unclipped.traffic == 1  # of one element, half goes around twice
    by_hop = replace(CLASSIC, name="by hop", ticks={**CLASSIC.ticks, "allreduce": 0}, alpha={"allreduce": 7})
    report = referee(run(clipping.pipeline, 2, 2, 2, setting=Setting(by_hop, clip=True)).trace)
    assert round(report.makespan - unclipped.makespan, 9) == 1.4


# --- The record ---


def test_a_trace_says_that_gradients_are_clipped() -> None:
    text = trace_to_json(run(clipping.pipeline, 2, 2, 2, setting=CLIPPING).trace)
    assert json.loads(text)["clip"] is True
    assert referee(trace_from_json(text)).error is None
    plain = {name: content for name, content in json.loads(text).items() if name != "clip"}
    Refused("no clipping", call="norm").require(referee(trace_from_json(json.dumps(plain))).error)
    with Refused("not boolean", name="clip", error=TraceError):
        trace_from_json(json.dumps({**plain, "clip": "yes"}))


# === Lag: weights that are older than the data ===


LAG = Setting("stages", steps=4, lag=1)


class VersionedRank:
    """One rank with two layers, in steps 0 to 3: weights by layer and version, all trained with every microbatch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
        self.weights = [[weight] for weight, _ in self.loaded]
        self.states = [state for _, state in self.loaded]

    def step(self, step: int, version: int) -> None:
        """Trains with the data of a step and the weights of a version."""
        inputs = [self.model.get_activation(range(self.model.BATCHES), step)]
        for layer in range(self.model.LAYERS):
            inputs.append(self.model.forward(layer, inputs[-1], self.weights[layer][version]))
        grad = self.model.loss(inputs.pop())
        for layer in reversed(range(self.model.LAYERS)):
            new, grad = self.model.backward(layer, inputs[layer], grad, self.weights[layer][version])
            weight, self.states[layer] = self.model.update(layer, new, self.weights[layer][-1], self.states[layer])
            self.weights[layer].append(weight)


def newer_than_data(rank: VersionedRank) -> None:
    rank.step(0, 0)
    rank.model.forward(0, rank.model.get_activation([0], 0), rank.weights[0][1])


def weight_too_old(rank: VersionedRank) -> None:
    rank.step(0, 0)
    rank.model.forward(0, rank.model.get_activation([0], 2), rank.weights[0][0])


def another_version(rank: VersionedRank) -> None:
    rank.step(0, 0)
    out = rank.model.forward(0, rank.model.get_activation([0], 1), rank.weights[0][0])
    rank.model.forward(1, out, rank.weights[1][1])


def back_to_new(rank: VersionedRank) -> None:
    rank.step(0, 0)
    out = rank.model.forward(0, rank.model.get_activation([0], 1), rank.weights[0][1])
    rank.model.forward(1, out, rank.weights[1][0])


def backward_with_another(rank: VersionedRank) -> None:
    rank.step(0, 0)
    inp = rank.model.get_activation([0], 1)
    middle = rank.model.forward(0, inp, rank.weights[0][0])
    grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][0]))
    _, before = rank.model.backward(1, middle, grad, rank.weights[1][0])
    rank.model.backward(0, inp, before, rank.weights[0][1])


def another_gradient(rank: VersionedRank) -> None:
    rank.step(0, 0)
    inp = rank.model.get_activation([0], 1)
    old = rank.model.forward(0, inp, rank.weights[0][0])
    new = rank.model.forward(0, inp, rank.weights[0][1])
    grad = rank.model.loss(rank.model.forward(1, new, rank.weights[1][1]))
    rank.model.backward(1, old, grad, rank.weights[1][0])


def mixed_sum(rank: VersionedRank) -> None:
    rank.step(0, 0)
    grads = []
    for version in (0, 1):
        inp = rank.model.get_activation([version], 1)
        middle = rank.model.forward(0, inp, rank.weights[0][version])
        grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][version]))
        grads.append(rank.model.backward(1, middle, grad, rank.weights[1][version])[0])
    grads[0] + grads[1]


def out_of_order(rank: VersionedRank) -> None:
    grads = []
    for step in (0, 1):
        inp = rank.model.get_activation([0, 1], step)
        middle = rank.model.forward(0, inp, rank.weights[0][0])
        grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][0]))
        grads.append(rank.model.backward(1, middle, grad, rank.weights[1][0])[0])
    rank.model.update(1, grads[1], rank.weights[1][0], rank.states[1])


REFUSED_VERSIONS: dict[Callable[[VersionedRank], None], tuple[int, Refused]] = {
    newer_than_data: (1, Refused("weight too new", step=1, inp_step=0)),
    weight_too_old: (1, Refused("weight too old", age="2 steps", lag=1, least=1)),
    another_version: (1, Refused("other version", what="activation", version=0, step=1)),
    back_to_new: (1, Refused("other version", what="activation", version=1, step=0)),
    backward_with_another: (1, Refused("other version", what="gradient", version=0, step=1)),
    another_gradient: (1, Refused("versions differ", inp_version=0, grad_version=1)),
    mixed_sum: (2, Refused("versions differ", sum_version=0, grad_version=1)),
    out_of_order: (2, Refused("gradient comes late", step=1, weight_step=0)),
}


@pytest.mark.parametrize("wrong", REFUSED_VERSIONS)
def test_a_version_that_cannot_be_is_refused_in_words(wrong: Callable[[VersionedRank], None]) -> None:
    batches, expected = REFUSED_VERSIONS[wrong]

    expected.require(run(lambda model: wrong(VersionedRank(model)), 2, batches, 1, setting=LAG).error)


def test_without_lag_an_old_weight_is_refused_as_before() -> None:
    error = run(lambda model: weight_too_old(VersionedRank(model)), 2, 1, 1, setting=Setting("stages", steps=4)).error
    Refused("steps differ", step=0, inp_step=2).require(error)


def test_a_zero_has_any_version() -> None:
    async def schedule(model: Model) -> None:
        rank = VersionedRank(model)
        rank.step(0, 0)
        inp = model.get_activation([0], 1)
        middle = model.forward(0, inp, rank.weights[0][0])
        grad_out = model.loss(model.forward(1, middle, rank.weights[1][0]))
        grad, _ = model.backward(1, middle, grad_out, rank.weights[1][0])
        assert (model.fake_grad(1, [], 1) + grad).version == (grad + model.fake_grad(1, [], 1)).version == 0

    assert run(schedule, 2, 1, 1, setting=LAG).error is None


def test_values_know_a_version_only_where_it_differs() -> None:
    kinds: tuple[Any, ...] = (Activation, ActivationGrad, WeightGrad)
    version: Any
    for kind in kinds:
        usual, old = kind(1, 2, [0], 1, step=2), kind(1, 2, [0], 1, step=2, version=1)
        assert (usual.version, old.version) == (None, 1)
        assert "with version 1 of" in str(old)
        for version, reason in ((2, "version not older"), (-1, "too small"), ("one", "no whole number")):
            with Refused(reason, owner=kind.__name__ if version == 2 else f"{kind.__name__}: "):
                kind(1, 2, [0], 1, step=2, version=version)


@pytest.mark.parametrize(
    ("lag", "expected"),
    [
        (-1, Refused("no number in bounds", name="Setting: lag")),
        (True, Refused("no number in bounds", name="Setting: lag")),
    ],
)
def test_a_lag_that_cannot_be_is_refused(lag: Any, expected: Refused) -> None:
    with expected:
        Setting(lag=lag)
    with Refused("lag without training", task="local"):
        Setting(task="local", lag=1)
    data = json.loads(trace_to_json(run(weight_versions, 2, 2, 2, setting=LAG).trace))
    assert data["lag"] == 1
    with expected:
        trace_from_json(json.dumps(data | {"lag": lag}))


# --- What it takes ---


SIZES = [((4, 4, 4), 4), ((4, 4, 4), 2), ((4, 8, 4), 3), ((2, 4, 2), 4), ((3, 6, 3), 2)]


@pytest.mark.parametrize(("size", "steps"), SIZES)
def test_two_versions_need_no_flush(size: tuple[int, int, int], steps: int) -> None:
    """mn(F + B) + (p - 1)(F + B), against n(m + p - 1)(F + B) with a flush after each step (F = 1, B = 2)."""
    (_, m, p), n = size, steps
    setting = Setting("stages", steps=n, lag=1)
    report = referee(run(weight_versions, *size, setting=setting).trace)
    flush = referee(run(pipeline(one_f_one_b), *size, setting=Setting("stages", steps=n)).trace)
    assert report.error is flush.error is None
    assert report.timesteps == 3 * (m * n + p - 1)
    assert flush.timesteps == 3 * n * (m + p - 1)
    assert (report.staleness, flush.staleness) == (1, 0)
    one_weight = 512 * 512
    assert report.peak.memory <= flush.peak.memory + one_weight
    assert report.timesteps >= time_bound(Size(*size), setting).least
    assert report.peak.memory >= memory_bound(Size(*size), setting).least


def test_a_schedule_without_lag_is_legal_where_there_may_be_some() -> None:
    trace = run(pipeline(one_f_one_b), 4, 4, 4, setting=LAG).trace
    report = referee(trace)
    assert (report.error, report.staleness, report.timesteps) == (None, 0, 84)
    assert replay(trace, small=True).passed


@pytest.mark.parametrize("m", [2, 3, 4])
def test_more_ranks_than_microbatches_use_weights_of_several_steps_at_once(m: int) -> None:
    """The bounds hold where microbatches of several steps are in flight."""
    setting = Setting("stages", steps=4, lag=1)
    trace = run(weight_versions, 4, m, 4, setting=setting).trace
    report = referee(trace)
    assert report.error is None
    assert report.timesteps >= time_bound(Size(4, m, 4), setting).least


# --- On tensors ---


def test_another_version_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = run(weight_versions, 3, 3, 3, setting=LAG).trace
    undelayed = trained(Workload(trace.size, trace.setting, True))
    delayed = trained(Workload(trace.size, trace.setting, True), (), {1: 0, 2: 1, 3: 2})
    assert all((one != two).any() for one, two in zip(undelayed, delayed))
    from lib.engine.replay import comparison

    monkeypatch.setattr(comparison, "trained", lambda workload, averages, versions: undelayed)
    assert not replay(trace, small=True).same_weights


# --- The picture ---


def test_forwards_with_old_weights_are_hatched() -> None:
    trace = run(weight_versions, 2, 2, 2, setting=LAG).trace
    assert "forward with old weights" in str(drawing.svg(drawing.draw(trace)))
    assert "forward with old weights" not in str(
        drawing.svg(drawing.draw(run(pipeline(one_f_one_b), 2, 2, 2, setting=LAG).trace))
    )


# === Outer steps ===


TICKS = {**COSTS["outer_steps"].ticks, "backward_input": 10, "backward_weight": 10}


def setting(steps: int = 4, outer: int = 2, late: int = 1, **more: Any) -> Setting:
    return Setting("outer_steps", steps=steps, task="outer", outer=outer, late=late, **more)


class OuterRank:
    """One rank that trains copies of all layers with its own microbatch: weights by layer and step."""

    def __init__(self, model: Model) -> None:
        self.model, self.layers = model, range(model.LAYERS)
        loaded = [model.load_weights(layer, outer=True) for layer in self.layers]
        self.agreed = [weight for weight, _, _ in loaded]
        self.states = [state for _, state, _ in loaded]
        self.outer = [outer for _, _, outer in loaded]
        self.copies = [[weight] for weight in self.agreed]
        self.grads: dict[tuple[int, int], Any] = {}

    def train(self, step: int, batches: Any = None, versions: dict[int, Any] | None = None) -> None:
        """A step with the last copies, or with other weights in some layers."""
        model, inputs = self.model, [self.model.get_activation(batches or [self.model.rank], step)]
        used = [(versions or {}).get(layer, self.copies[layer][-1]) for layer in self.layers]
        for layer in self.layers:
            inputs.append(model.forward(layer, inputs[-1], used[layer]))
        grad = model.loss(inputs.pop())
        for layer in reversed(self.layers):
            new, grad = model.backward(layer, inputs.pop(), grad, used[layer])
            self.grads[layer, step] = new
            weight, self.states[layer] = model.update(layer, new, used[layer], self.states[layer])
            self.copies[layer].append(weight)

    def change(self, layer: int = 0, step: int = -1) -> Any:
        return self.model.delta(layer, self.agreed[layer], self.copies[layer][step])

    async def average(self, layer: int = 0) -> Weight:
        total = await self.model.allreduce(self.change(layer), layer)
        new = self.model.outer_update(layer, self.agreed[layer], total, self.outer[layer])
        self.agreed[layer], self.outer[layer] = new
        return self.agreed[layer]


async def unsummed(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.outer_update(0, rank.agreed[0], rank.change(), rank.outer[0])


async def summed_twice(rank: OuterRank) -> None:
    rank.train(0)
    total = await rank.model.allreduce(rank.change(), 0)
    await rank.model.allreduce(total, 0)


async def updated_twice(rank: OuterRank) -> None:
    rank.train(0)
    total = await rank.model.allreduce(rank.change(), 0)
    agreed, state = rank.model.outer_update(0, rank.agreed[0], total, rank.outer[0])
    rank.model.outer_update(0, agreed, total, state)


async def another_state(rank: OuterRank) -> None:
    rank.train(0)
    total, old = await rank.model.allreduce(rank.change(), 0), rank.agreed[0]
    _, state = rank.model.outer_update(0, old, total, rank.outer[0])
    rank.model.outer_update(0, old, total, state)


async def too_late(rank: OuterRank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.train(1)
    rank.train(2)
    rank.model.merge(0, rank.copies[0][-1], agreed)


async def not_there_yet(rank: OuterRank) -> None:
    rank.train(0)
    rank.train(1)
    agreed = await rank.average()
    rank.model.merge(0, rank.copies[0][1], agreed)


async def merged_twice(rank: OuterRank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.model.merge(0, rank.model.merge(0, rank.copies[0][-1], agreed), agreed)


async def old_agreed(rank: OuterRank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.train(1)
    rank.model.forward(0, rank.model.get_activation([rank.model.rank], 2), agreed)


async def old_agreed_updated(rank: OuterRank) -> None:
    loaded = rank.states[0]
    rank.train(0)
    rank.train(1)
    rank.model.update(0, rank.grads[0, 1], rank.agreed[0], loaded)


async def not_merged(rank: OuterRank) -> None:
    rank.train(0)
    await rank.average()
    rank.train(1)
    rank.change()


async def too_long(rank: OuterRank) -> None:
    for step in range(3):
        rank.train(step)
    rank.change()


async def untrained(rank: OuterRank) -> None:
    rank.change()


async def from_a_copy(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.copies[0][-1], rank.copies[0][-1])


async def another_layer(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.agreed[0], rank.copies[1][-1])


async def other_shards(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.delta(0, rank.agreed[0].shard(0, 2), rank.copies[0][-1])


async def other_rounds(rank: OuterRank) -> None:
    rank.train(0)
    agreed = await rank.average()
    rank.copies[0].append(rank.model.merge(0, rank.copies[0][-1], agreed))
    first = rank.model.rank == 0
    rank.train(1, None, {} if first else {0: rank.copies[0][-2]})
    before = agreed if first else rank.model.load_weights(0)[0]
    await rank.model.allreduce(rank.model.delta(0, before, rank.copies[0][-1]), 0)


async def weights_averaged(rank: OuterRank) -> None:
    rank.train(0)
    await rank.model.allreduce(rank.copies[0][-1], 0)


async def another_replica(rank: OuterRank) -> None:
    rank.train(0)
    if rank.model.rank == 0:
        await rank.model.pass_to(1, rank.copies[0][-1])
    else:
        other = await rank.model.receive(0)
        out = rank.model.forward(0, rank.model.get_activation([0], 1), other)
        rank.model.forward(1, out, rank.copies[1][-1])


async def other_batches(rank: OuterRank) -> None:
    rank.train(0)
    rank.train(1, [1 - rank.model.rank])


async def final_copy(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.set_final_weight(0, rank.copies[0][-1])


async def early_final(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.set_final_weight(0, await rank.average())


async def early_copy(rank: OuterRank) -> None:
    rank.train(0)
    rank.model.set_final_copy(0, rank.copies[0][-1])


async def agreed_as_copy(rank: OuterRank) -> None:
    rank.model.set_final_copy(0, rank.agreed[0])


async def zero_gradient(rank: OuterRank) -> None:
    rank.model.update(0, rank.model.fake_grad(0, []), rank.agreed[0], rank.states[0])


async def wrong_kinds(rank: OuterRank) -> None:
    rank.model.outer_update(0, rank.agreed[0], rank.outer[0], rank.outer[0])  # type: ignore[arg-type]


REFUSED_OUTER: dict[Callable[[OuterRank], Any], Refused] = {
    unsummed: Refused("copies missing", batches="{0}", of=2),
    summed_twice: Refused("in both", thing="batch", number=0, both="both rank 0 and rank 1"),
    updated_twice: Refused("delta of another round", delta_round=0, weight_round=1),
    another_state: Refused("other outer state"),
    too_late: Refused("merged too late", late="2 steps", allowed=1),
    not_there_yet: Refused("merged too early", step=2, copy_step=1),
    merged_twice: Refused("merge of other rounds"),
    old_agreed: Refused("not merged", step=1, copy_step=2),
    old_agreed_updated: Refused("not merged", step=0, copy_step=1),
    not_merged: Refused("copy not merged", copy_round=0, round_of=1),
    too_long: Refused("round too long", steps=3, most=2),
    untrained: Refused("weight not a copy", what="after"),
    from_a_copy: Refused("weight not agreed", what="before"),
    another_layer: Refused("other layer", call="delta", layer=0),
    other_shards: Refused(
        "other shards",
        shards="shard 0 of 2",
        other="weight of layer 0, unsharded, step 1, of the replica trained since step 0 with batch 0",
    ),
    other_rounds: Refused("copies of other rounds"),
    weights_averaged: Refused("wrong kind for use", use="the value to reduce", kind="a weight gradient"),
    another_replica: Refused("copies of different replicas"),
    other_batches: Refused("copy with other batches", batches="batch 0", grad_batches="batch 1 of 2"),
    final_copy: Refused("final weight not agreed"),
    early_final: Refused("round not last", step=1, last=2),
    early_copy: Refused("copy not final", steps=4),
    agreed_as_copy: Refused("weight not a copy", what="copy"),
    zero_gradient: Refused("gradient of no batches"),
    wrong_kinds: Refused(
        "wrong kind",
        name="delta",
        kind="an outer gradient",
        value="the outer optimizer state of layer 0, unsharded, step 0",
    ),
}


def refused_outer(wrong: Callable[[OuterRank], Any], game: Setting) -> PuzzleError | None:
    async def schedule(model: Model) -> None:
        await wrong(OuterRank(model))

    return run(schedule, 2, 2, 2, setting=game).error


@pytest.mark.parametrize("wrong", REFUSED_OUTER)
def test_what_an_outer_step_cannot_be_is_refused_in_words(wrong: Callable[[OuterRank], Any]) -> None:
    ticks = {**TICKS, "pass_to": 0, "receive": 0}
    costs = replace(COSTS["outer_steps"], name="messages", ticks=ticks)
    REFUSED_OUTER[wrong].require(refused_outer(wrong, Setting(costs, steps=4, task="outer", outer=2, late=1)))


CALLS: dict[str, Callable[[Model, Any], Any]] = {
    "outer=True": lambda model, weight: model.load_weights(0, outer=True),
    "delta": lambda model, weight: model.delta(0, weight, weight),
    "merge": lambda model, weight: model.merge(0, weight, weight),
    "set_final_copy": lambda model, weight: model.set_final_copy(0, weight),
}


@pytest.mark.parametrize("call", CALLS)
def test_in_other_tasks_there_is_no_outer_step(call: str) -> None:
    def schedule(model: Model) -> None:
        CALLS[call](model, model.load_weights(0)[0])

    error = run(schedule, 1, 1, 1, setting=Setting(steps=2, task="local")).error
    Refused("no outer steps", call=call, task="local").require(error)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"task": "outer"}, Refused("no number in bounds", minimum=1)),
        ({"task": "outer", "outer": 2, "late": -1}, Refused("no number in bounds", minimum=0)),
        ({"task": "outer", "outer": 2, "mix": 1}, Refused("mix out of bounds", mix="1")),
        ({"task": "outer", "outer": 2, "mix": 0.5}, Refused("no fraction")),
        ({"outer": 2}, Refused("outer fields without outer", task="train")),
        ({"task": "local", "late": 1}, Refused("outer fields without outer", task="local")),
        ({"task": "outer", "outer": 2, "lag": 1}, Refused("lag without training")),
        ({"task": "outer", "outer": 2, "layer": "attention"}, Refused("attention in other game")),
    ],
)
def test_a_setting_that_cannot_be_is_refused(fields: Any, expected: Refused) -> None:
    with expected:
        Setting(**fields)


# --- What must be there at the end ---


def altered(changes: dict[str, Callable[[Model], Any]]) -> Any:
    """The report on DiLoCo with some of the model's calls replaced."""

    async def schedule(model: Model) -> None:
        for name, change in changes.items():
            object.__setattr__(model, name, change(model))
        await outer_steps(lambda step: range(2) if step % 2 == 0 else (), waits=True)(model)

    outcome = finished(schedule, 2, 2, 2, setting=setting())
    return referee(outcome.trace)


def nothing(*_: Any) -> None:
    """Declares nothing."""


def test_each_layers_agreed_weight_and_each_replicas_copy_are_declared() -> None:
    assert altered({}).error is None
    error = altered({"set_final_weight": lambda model: nothing}).error
    Refused("no final weight", layer=0).require(error)
    of_rank_1 = {"set_final_copy": lambda model: model.set_final_copy if model.rank else nothing}
    Refused("no final copy", layer=0, missing="batch 0").require(altered(of_rank_1).error)


def test_a_replica_computes_a_step_with_one_weight_in_each_layer() -> None:
    """A forward that counts for nothing is refused too: the rule needs no history of every gradient."""

    async def schedule(model: Model) -> None:
        rank = OuterRank(model)
        rank.train(0)
        copies = [copies[-1] for copies in rank.copies]
        for layer in rank.layers:
            merged = model.merge(layer, copies[layer], await rank.average(layer))
            rank.copies[layer].append(merged)
        rank.train(1)
        if model.rank == 0:
            model.forward(0, model.get_activation([0], 1), copies[0])
        for layer in rank.layers:
            model.set_final_weight(layer, await rank.average(layer))
            model.set_final_copy(layer, rank.copies[layer][-1])

    outcome = finished(schedule, 2, 2, 2, setting=setting(steps=2, outer=1))
    Refused(
        "several weights",
        batch=0,
        step=1,
        first="weight of layer 0, unsharded, step 1, of the replica trained since step 1 with batch 0",
        weight="weight of layer 0, unsharded, step 1, of the replica trained since step 0 with batch 0",
    ).require(referee(outcome.trace).error)


# --- Values and the record ---


def test_outer_gradients_are_checked_and_added() -> None:
    copy: Any = (0, [0], 2, [])
    one, other = Delta(0, 1, 2, copy=copy, copies=((0,),)), Delta(0, 1, 2, copy=(0, [1], 2, []), copies=((1,),))  # type: ignore[arg-type]
    total = one + other
    assert total.copies == ((0,), (1,))
    assert total.is_complete()
    assert not one.is_complete()
    approved("outer_steps", "outer gradients are checked and added", str(total))
    with Refused("in both", thing="batch", number=0, both="both the first value and the second value"):
        one + one
    with Refused("copies of other batches"):
        Delta(0, 1, 2, copy=copy, copies=((1,),))
    with Refused("outer gradient without copies"):
        Delta(0, 1, 2)
    assert one.memory() == OuterState(0, 1, 0).memory() == 512 * 512


def test_a_trace_says_what_the_rounds_are() -> None:
    trace = run(streaming_diloco, 2, 2, 2, setting=setting(mix=Fraction(1, 4))).trace
    data = json.loads(trace_to_json(trace))
    assert (data["outer"], data["late"], data["mix"]) == (2, 1, "1/4")
    assert trace_from_json(trace_to_json(trace)) == trace
    for mix in (0.25, "1/0", "2"):
        with pytest.raises(TraceError, match="mix"):
            trace_from_json(json.dumps(data | {"mix": mix}))


# --- Time, memory and traffic ---


def test_streaming_sends_as_much_as_diloco_and_waits_for_nothing() -> None:
    game, weight = setting(8, 4), 512 * 512
    streaming, blocking, each = (
        referee(run(schedule, 4, 4, 4, setting=game).trace)
        for schedule in (
            streaming_diloco,
            outer_steps(all_together, waits=True),
            outer_steps(all_together, sums_gradients=True),
        )
    )
    assert (streaming.timesteps, streaming.peak.memory) == (116.5, 5_373_952)
    assert (blocking.timesteps, blocking.peak.memory) == (179.5, 4_980_736)
    assert streaming.traffic == blocking.traffic == 2 * 4 * (2 * 3 * weight // 4)
    assert each.traffic == game.outer * blocking.traffic
    assert (streaming.family, streaming.drift) == ("local SGD", 5)
    assert streaming.timesteps >= time_bound(Size(4, 4, 4), game).least
    assert streaming.peak.memory >= memory_bound(Size(4, 4, 4), game).least


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs_take_the_time_of_a_second_simulator_in_any_order(seed: int) -> None:
    program = Program(seed)
    costs = Costs("random", ticks=program.ticks, overlap=program.overlaps)
    game = Setting(costs, steps=program.steps, task="outer", outer=program.rounds, late=program.late)
    trace = run(program.schedule(), *program.size, setting=game).trace
    report = referee(trace)
    assert report.error is None
    assert (round(report.makespan * 10), report.traffic) == program.simulated()
    assert time_bound(trace.size, game).least <= report.timesteps
    assert memory_bound(trace.size, game).least <= report.peak.memory
    for order in permutations(range(program.size[2])):
        assert run(program.schedule(), *program.size, list(order), setting=game).trace == trace
    assert replay(trace, small=True).passed


# --- On tensors ---


async def replicas_of_two_ranks(model: Model) -> None:
    """Two replicas of two ranks each, which sum the gradients of their two microbatches."""
    own = [2 * (model.rank // 2), 2 * (model.rank // 2) + 1]
    weight, state, outer = model.load_weights(0, outer=True)
    agreed = weight
    for step in range(2):
        inp = model.get_activation([own[model.rank % 2]], step)
        grad = model.loss(model.forward(0, inp, weight))
        model.backward_input(0, inp, grad, weight)
        total = await model.allreduce(model.backward_weight(0, inp, grad), 0, group="own")
        weight, state = model.update(0, total, weight, state)
    change = await model.allreduce(model.delta(0, agreed, weight), 0, group="dp")
    agreed, _ = model.outer_update(0, agreed, change, outer)
    model.set_final_weight(0, agreed)
    model.set_final_copy(0, weight)


OF_TWO_RANKS = Setting(
    replace(COSTS["outer_steps"], name="halves", ticks=TICKS), {"dp": 2, "own": 2}, steps=2, task="outer", outer=2
)


async def with_a_parked_outer_state(model: Model) -> None:
    weight, state, outer = [await model.fetch(one) for one in model.load_weights(0, tier="host", outer=True)]  # type: ignore[call-overload]
    inp = model.get_activation([0])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    copy, _ = model.update(0, grad, weight, state)
    agreed, _ = model.outer_update(0, weight, model.delta(0, weight, copy), outer)
    model.set_final_weight(0, agreed)
    model.set_final_copy(0, copy)


PARKED_OUTER = Setting(replace(COSTS["outer_steps"], name="host", tiers={"host": Tier(0, 0)}), task="outer", outer=1)


@pytest.mark.parametrize("other", [{"late": 0}, {"mix": Fraction(1, 4)}])
def test_another_mixture_or_a_punctual_average_gives_other_weights(other: Any) -> None:
    """The comparison reads both from the trace: it does not pass because they do not count."""
    from lib.engine.replay.comparison import trained_with_outer_steps
    from lib.engine.replay.workload import Workload
    from lib.ledger.recomputation import executed

    def results(**more: Any) -> Any:
        waits = more.get("late") == 0
        trace = run(outer_steps(one_by_one, waits=waits), 4, 4, 4, setting=setting(8, 4, **more)).trace
        return trained_with_outer_steps(Workload(trace.size, trace.setting, True), executed(trace))

    usual, changed = results(), results(**other)
    assert all((one != two).any() for one, two in zip(usual, changed))


# --- The picture ---


def test_a_picture_shows_values() -> None:
    change = Delta(0, 1, 2, copy=(0, [0], 2, []), copies=((0,),))  # type: ignore[arg-type]
    assert "|∇W|" in str(drawing.svg(Scalar(2, 0, frozenset({0}), 2).draw()))
    assert "ΔW" in str(drawing.svg(change.draw()))
    assert "opt" in str(drawing.svg(OuterState(0, 1, 0).draw()))

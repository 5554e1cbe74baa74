"""Lag: weights that are older than the data: what is refused, what is computed, in how much time and memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import drawing
from lib import (
    Activation,
    ActivationGrad,
    Model,
    Setting,
    Size,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.engine.replay.comparison import trained
from lib.engine.replay.replay import replay
from lib.engine.replay.workload import Workload
from lib.pipelines import one_f_one_b, pipeline
from lib.pipelines.bounds import memory_bound, time_bound
from solutions.weight_versions import weight_versions
from tests.support.refusals import Refused

LAG = Setting("stages", steps=4, lag=1)


class Rank:
    """One rank with two layers, in steps 0 to 3: weights by layer and version, all of them trained with one batch."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.loaded = [model.load_weights(layer) for layer in range(model.LAYERS)]
        self.weights = [[weight] for weight, _ in self.loaded]
        self.states = [state for _, state in self.loaded]

    def step(self, step: int, version: int) -> None:
        """Trains with the data of a step and the weights of a version."""
        inputs = [self.model.get_activation([0], step)]
        for layer in range(self.model.LAYERS):
            inputs.append(self.model.forward(layer, inputs[-1], self.weights[layer][version]))
        grad = self.model.loss(inputs.pop())
        for layer in reversed(range(self.model.LAYERS)):
            new, grad = self.model.backward(layer, inputs[layer], grad, self.weights[layer][version])
            weight, self.states[layer] = self.model.update(layer, new, self.weights[layer][-1], self.states[layer])
            self.weights[layer].append(weight)


def newer_than_data(rank: Rank) -> None:
    rank.step(0, 0)
    rank.model.forward(0, rank.model.get_activation([0], 0), rank.weights[0][1])


def too_old(rank: Rank) -> None:
    rank.step(0, 0)
    rank.model.forward(0, rank.model.get_activation([0], 2), rank.weights[0][0])


def another_version(rank: Rank) -> None:
    rank.step(0, 0)
    out = rank.model.forward(0, rank.model.get_activation([0], 1), rank.weights[0][0])
    rank.model.forward(1, out, rank.weights[1][1])


def back_to_new(rank: Rank) -> None:
    rank.step(0, 0)
    out = rank.model.forward(0, rank.model.get_activation([0], 1), rank.weights[0][1])
    rank.model.forward(1, out, rank.weights[1][0])


def backward_with_another(rank: Rank) -> None:
    rank.step(0, 0)
    inp = rank.model.get_activation([0], 1)
    middle = rank.model.forward(0, inp, rank.weights[0][0])
    grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][0]))
    _, before = rank.model.backward(1, middle, grad, rank.weights[1][0])
    rank.model.backward(0, inp, before, rank.weights[0][1])


def another_gradient(rank: Rank) -> None:
    rank.step(0, 0)
    inp = rank.model.get_activation([0], 1)
    old = rank.model.forward(0, inp, rank.weights[0][0])
    new = rank.model.forward(0, inp, rank.weights[0][1])
    grad = rank.model.loss(rank.model.forward(1, new, rank.weights[1][1]))
    rank.model.backward(1, old, grad, rank.weights[1][0])


def mixed_sum(rank: Rank) -> None:
    rank.step(0, 0)
    grads = []
    for version in (0, 1):
        inp = rank.model.get_activation([version], 1)
        middle = rank.model.forward(0, inp, rank.weights[0][version])
        grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][version]))
        grads.append(rank.model.backward(1, middle, grad, rank.weights[1][version])[0])
    grads[0] + grads[1]


def out_of_order(rank: Rank) -> None:
    grads = []
    for step in (0, 1):
        inp = rank.model.get_activation([0, 1], step)
        middle = rank.model.forward(0, inp, rank.weights[0][0])
        grad = rank.model.loss(rank.model.forward(1, middle, rank.weights[1][0]))
        grads.append(rank.model.backward(1, middle, grad, rank.weights[1][0])[0])
    rank.model.update(1, grads[1], rank.weights[1][0], rank.states[1])


REFUSED: dict[Callable[[Rank], None], tuple[int, Refused]] = {
    newer_than_data: (1, Refused("weight too new", step=1, inp_step=0)),
    too_old: (1, Refused("weight too old", age="2 steps", lag=1, least=1)),
    another_version: (1, Refused("other version", what="activation", version=0, step=1)),
    back_to_new: (1, Refused("other version", what="activation", version=1, step=0)),
    backward_with_another: (1, Refused("other version", what="gradient", version=0, step=1)),
    another_gradient: (1, Refused("versions differ", inp_version=0, grad_version=1)),
    mixed_sum: (2, Refused("versions differ", sum_version=0, grad_version=1)),
    out_of_order: (2, Refused("gradient comes late", step=1, weight_step=0)),
}


@pytest.mark.parametrize("wrong", REFUSED)
def test_a_version_that_cannot_be_is_refused_in_words(wrong: Callable[[Rank], None]) -> None:
    batches, expected = REFUSED[wrong]

    async def schedule(model: Model) -> None:
        rank = Rank(model)
        if batches == 2:
            rank.step = lambda step, version: both(rank, step)  # type: ignore[method-assign]
        wrong(rank)

    error = run(schedule, 2, batches, 1, setting=LAG).error
    expected.require(error)


def both(rank: Rank, step: int) -> None:
    """A step with both microbatches."""
    inputs = [rank.model.get_activation([0, 1], step)]
    for layer in (0, 1):
        inputs.append(rank.model.forward(layer, inputs[-1], rank.weights[layer][step]))
    grad = rank.model.loss(inputs.pop())
    for layer in (1, 0):
        new, grad = rank.model.backward(layer, inputs[layer], grad, rank.weights[layer][step])
        weight, rank.states[layer] = rank.model.update(layer, new, rank.weights[layer][-1], rank.states[layer])
        rank.weights[layer].append(weight)


def test_without_lag_an_old_weight_is_refused_as_before() -> None:
    async def schedule(model: Model) -> None:
        too_old(Rank(model))

    error = run(schedule, 2, 1, 1, setting=Setting("stages", steps=4)).error
    Refused("steps differ", step=0, inp_step=2).require(error)


def test_a_zero_has_any_version() -> None:
    async def schedule(model: Model) -> None:
        rank = Rank(model)
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

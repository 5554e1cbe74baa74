"""Chapter `data`: ZeRO's formulas, padded shards of any size, and sums that stay exact."""

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import launch
from puzzles.catalog.engine import ENGINE_PUZZLES, models
from puzzles.catalog.engine.models import integers, numbers
from puzzles.catalog.engine.trial import WrongResultError
from puzzles.content.engine.data import trials as data_trials
from puzzles.content.engine.shards import trials as shard_trials
from puzzles.content.engine.shards.trials import (
    OTHER_CASES,
    PAPER_CASES,
    Case,
    require_best,
    require_held,
    require_shard,
    stepped,
    uneven_fsdp,
    uneven_targets,
    zero2,
)
from puzzles.tracks.engine.judge import require_right
from solutions.engine.uneven_fsdp import UnevenFSDP
from solutions.engine.zero2 import ZeRO2
from solutions.engine.zero_memory import ZeROMemory, memory
from tests.screens.texts import approved_refusal
from tests.support.engine_trials import perform
from tests.support.examples import examples


def test_zero2_sends_half_in_backward_and_half_in_the_step() -> None:
    readings = perform(zero2(), ZeRO2).readings
    assert [row[0].sent for row in readings] == [0, 0, 6_144, 12_288]
    loaded, _, after_backward, after_step = (row[0].live for row in readings)
    assert (after_backward - loaded, after_step) == (2_048, loaded)  # the shards of both gradients; then nothing


def wide(tensors: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value.astype(np.float64) for name, value in tensors.items()}


def test_three_steps_of_zero2_stay_exact() -> None:
    """In double precision a single device gets the same numbers: no sum was rounded, in any order."""
    params = {models.W0: integers(11, 8, 12, most=1), models.W1: integers(12, 12, 8, most=1)}
    x, g = integers(13, 6, 8, most=1), integers(14, 6, 8, most=1)
    narrow, exact = params, wide(params)
    state, exact_state = ({name: np.zeros_like(value) for name, value in start.items()} for start in (narrow, exact))
    for rate in (0.5, 0.25, 0.5):
        narrow, state = stepped(narrow, state, models.mlp_forward_backward(narrow, x, g)[1], rate)
        _, grads = models.mlp_forward_backward(exact, x.astype(np.float64), g.astype(np.float64))
        exact_state = {name: 0.5 * exact_state[name] + grads[name] for name in exact}
        exact = {name: exact[name] - rate * exact_state[name] for name in exact}
    assert all(np.array_equal(narrow[name], exact[name]) for name in exact)
    assert all(np.count_nonzero(state[name]) for name in state)


@examples(25)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 5))
def test_flat_shards_train_any_layers_on_any_number_of_devices(model_dim: int, hidden_dim: int, n: int) -> None:
    trial = uneven_fsdp(2 * n, model_dim, hidden_dim, n)
    performed = perform(trial, UnevenFSDP)
    require_right(trial, performed)
    limits = uneven_targets(2 * n, model_dim, hidden_dim, n)
    (meter, *_), last = performed.readings[0], performed.readings[-1]
    assert (meter.live, last[0].sent, last[0].collectives) == (limits["weights"], limits["sent"], limits["collectives"])


def test_what_was_saved_on_four_devices_loads_on_three() -> None:
    trial = shard_trials.uneven_fsdp()
    (saved, *_) = perform(trial, UnevenFSDP).results[-1]
    with launch(UnevenFSDP, 3, **trial.arguments) as run:
        run.load_checkpoint(saved)
        (again, *_) = run.call("save", [list(shard_trials.LAYERS)] * 3)
    assert all(np.array_equal(again[name], saved[name]) for name in saved)


def test_the_memory_of_the_paper() -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters on 64 devices, 12 bytes of state."""
    told = [f"{memory(stage, 7_500_000_000, 64) / 1e9:.3g}" for stage in range(4)]
    assert told == ["120", "31.4", "16.6", "1.88"]
    p, n = 7_500_000_000, 64
    assert [memory(s, p, n) for s in range(4)] == [16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n]


PAPER_BEST = [(0, 1), (1, 2), (1, 4), (2, 4), (2, 16), (2, 64), (3, 8), (3, 64), None]
OTHERS_BEST = [(1, 2), (2, 6), (2, 12), (3, 8), (3, 48), None, (3, 64), (3, 512), (3, 1024)]


@pytest.mark.parametrize(
    ("cases", "best"), [(PAPER_CASES, PAPER_BEST), (OTHER_CASES, OTHERS_BEST)], ids=["paper", "others"]
)
def test_the_best_plans_are_those_worked_out_by_hand(cases: list[Case], best: list[Any]) -> None:
    assert [next(iter(case.plans()), None) for case in cases] == best
    assert all(case.parameters % (case.scale * case.devices) == 0 for case in cases)


@examples(60)
@given(st.integers(1, 10**6), st.integers(1, 96), st.floats(0.1, 18))
def test_the_reference_finds_what_trying_everything_finds(thousands: int, devices: int, each: float) -> None:
    case = Case(thousands * 1000, devices, int(each * thousands * 1000), 1)
    assert ZeROMemory().cheapest(**case._asdict()) == next(iter(case.plans()), None)


CASE = Case(7_500_000_000, 64, 40_000_000_000, 312_500)
"""Stage 2 with degree 8 is best: 28.1 GB."""


@pytest.mark.parametrize(
    ("result", "facts"),
    [
        (None, ("returned None", "a plan fits")),
        ((2, 8.0), ("(stage, degree)", "two whole numbers", "(2, 8.0)")),
        ((4, 8), ("(stage 4, degree 8)", "0 to 3", "divide the number of devices")),
        ((2, 7), ("(stage 2, degree 7)", "0 to 3", "divide the number of devices")),
        ((2, 4), ("stage 2 with degree 4", "41.25 GB per device")),
        ((3, 4), ("stage 3 with degree 4", "3 numbers per parameter", "another stage", "only 2")),
        ((2, 16), ("stage 2 with degree 16", "a smaller degree")),
    ],
)
def test_the_message_says_why_a_plan_is_not_the_best(result: Any, facts: tuple[str, ...]) -> None:
    with pytest.raises(WrongResultError) as why:
        require_best(CASE, result, "device 0")
    assert all(fact in str(why.value) for fact in ("device 0: ", *facts)), why.value
    require_best(CASE, (2, 8), "device 0")


def test_the_arrays_held_must_match_the_plan() -> None:
    require_held(CASE, (2, 8), 90_000, "device 0")
    with approved_refusal("data", "the arrays held must match the plan", WrongResultError):
        require_held(CASE, (2, 8), 48_000, "device 0")
    with approved_refusal("data", "the arrays held must match the plan, 2", WrongResultError):
        require_held(CASE, None, 8, "device 0")


RIGHT = np.array([1, 2, 0], np.float32)


FLAT = "should return your flat shards; the one of 'layer_0' has 3 numbers"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, FLAT),
        ({"layer_1": RIGHT}, FLAT),
        ({"layer_0": RIGHT[:2]}, FLAT),
        ({"layer_0": RIGHT + 1}, "layer_0 differs .*: number 0 is 2 but should be 1"),
        ({"layer_0": np.array([1, 2, 5])}, "layer_0 ends with padding"),
    ],
)
def test_the_message_says_how_a_shard_is_wrong(result: Any, message: str) -> None:
    with pytest.raises(WrongResultError, match=message):
        require_shard(result, "layer_0", RIGHT, 2, "device 0")
    require_shard({"layer_0": RIGHT}, "layer_0", RIGHT, 2, "device 0")


def test_the_meter_reads_what_the_formula_says() -> None:
    trial = shard_trials.zero_memory()
    readings = perform(trial, ZeROMemory).readings[1:]
    seen = [row[0].live * 312_500 / 1e9 for row in readings]
    assert [f"{gigabytes:.5g}" for gigabytes in seen] == [
        *("120", "75", "52.5", "41.25", "21.562", "16.641", "15", "1.875", "0")
    ]


def test_the_statements_way_to_read_the_meter_works() -> None:
    assert "`run = launch(ZeROMemory, 1)`" in " ".join(ENGINE_PUZZLES["ZeROMemory"].statement.split())
    run = launch(ZeROMemory, 1)
    assert run.forward(CASE._asdict()) == [(2, 8)]
    assert run.meters[0].live * CASE.scale == 28_125_000_000


def adam_outcome() -> tuple[list[Any], list[Any], list[Any]]:
    """What forward, backward and step return on two devices where all is right, and the rows of outputs."""
    whole = {name: numbers(i, 4, 2) for i, name in enumerate(shard_trials.NAMES)}
    steps = [
        {
            "weights": {name: weight.astype(np.float16) for name, weight in whole.items()},
            "master": {name: np.split(weight, 2)[device] for name, weight in whole.items()},
            "scale": 8.0,
        }
        for device in range(2)
    ]
    return [whole], steps, [numbers(5 + device, 3, 2).astype(np.float16) for device in range(2)]


def changed(steps: list[Any], **parts: Any) -> list[Any]:
    return [steps[0], {**steps[1], **parts}]


def test_a_step_in_mixed_precision_is_refused_by_what_differs() -> None:
    (whole,), steps, _ = adam_outcome()
    first = shard_trials.NAMES[0]
    master, weights = steps[1]["master"], steps[1]["weights"]
    shard_trials.require_step(steps, whole, 8.0, {}, "step 1")
    made = {"is it doubled?": {name: 2 * weight for name, weight in whole.items()}}
    refused = {
        "step 1, device 1: step should return a dictionary of weights, master, scale": [steps[0], {"scale": 8.0}],
        f"step 1, device 1: 'weights' should have '{first}' as float16 of shape (4, 2)": changed(steps, weights=whole),
        f"step 1, device 1: 'master' should have '{first}' as float32 of shape (2, 2)": changed(steps, master=whole),
        f"step 1, device 1: the master rows of '{first}' differ; is it doubled?": changed(
            steps, master={name: 2 * rows for name, rows in master.items()}
        ),
        "step 1, device 1: the scale is 4.0, and should be 8: it is halved where": changed(steps, scale=4.0),
        f"step 1, device 1: '{first}' in float16 is not what the devices' master rows are rounded to": changed(
            steps, weights={name: weight + np.float16(0.001) for name, weight in weights.items()}
        ),
    }
    for words, results in refused.items():
        with pytest.raises(WrongResultError, match=re.escape(words)):
            shard_trials.require_step(results, whole, 8.0, made, "step 1")


def test_the_outputs_of_mixed_precision_are_refused_by_what_differs() -> None:
    _, _, outs = adam_outcome()
    right = [out.astype(np.float64) for out in outs]
    shard_trials.require_outputs(outs, [None, None], right, "step 1")
    refused: dict[str, tuple[list[Any], list[Any]]] = {
        "step 1, device 0: forward should return float16 of shape (3, 2)": (right, [None, None]),
        "step 1, device 1: the output of forward differs": ([outs[0], -outs[1]], [None, None]),
        "step 1, device 0: backward should return None; the shards stay with you": (outs, [{}, None]),
    }
    for words, (returned, nothing) in refused.items():
        with pytest.raises(WrongResultError, match=re.escape(words)):
            shard_trials.require_outputs(returned, nothing, right, "step 1")


def test_one_device_alone_sees_the_overflow_of_the_shown_trial() -> None:
    """And no gradient is near the largest number of float16, so rounding cannot decide."""
    trial = shard_trials.sharded_adam()
    (x, g) = (np.concatenate(trial.calls[3 + i].arguments) for i in (0, 1))
    _, grads = models.mlp_forward_backward(trial.params, x, g)
    largest = [np.abs(rows).max() * shard_trials.SCALE for rows in np.split(grads[models.W0], 4)]
    assert [most > 65_504 for most in largest] == [False, False, True, False]
    assert min(abs(most / 65_504 - 1) for most in largest) > 0.5
    assert np.abs(grads[models.W1]).max() * shard_trials.SCALE < 30_000


def test_the_concept_of_stale_gradients_states_measured_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = data_trials.parameter_server()
    start, given = trial.params["weights"], trial.calls[0].arguments
    order, examples = given[0]["order"], given[2:]
    x, y = (np.concatenate([one[name] for one in examples]) for name in ("x", "y"))

    def loss(w: Any) -> float:
        return float(np.mean((x @ w - y) ** 2) / 2)

    def after(rate: float, fresh: bool = False) -> float:
        monkeypatch.setattr(data_trials, "RATE", rate)
        return loss(data_trials.trained(start, examples, order, 2, fresh=fresh))

    synchronous = start.astype(np.float64)
    for _ in range(3):
        grads = [one["x"].T @ (one["x"] @ synchronous - one["y"]) / len(one["y"]) for one in examples]
        synchronous = synchronous - data_trials.RATE * sum(grads)
    losses = [loss(start), after(data_trials.RATE), loss(synchronous), after(1.0, fresh=True)]
    concept = ENGINE_PUZZLES["ParameterServer"].concept
    assert all(f"{value:.2f}" in concept for value in losses)
    assert after(1.0) > 100 * losses[0]
    slow = [place for place, worker in enumerate(order) if worker == 5]
    assert {later - before - 1 for before, later in pairwise(slow)} == {9}

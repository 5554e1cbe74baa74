"""Frozen layers, and updates of full matrices: what is refused, what it takes, on tensors, and lower bounds."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from lib import Model, RuleError, Setting, Size, TraceError, referee, run, trace_from_json, trace_to_json
from lib.ledger.setting import Game
from lib.pipelines.bounds import pipeline_time_bound, time_bound
from solutions.frozen_encoder import frozen_encoder
from tests.support import finished
from tests.support.refusals import Refused

FROZEN = Setting("parts", frozen=(0, 2))
"""Of four layers, 1 is the first that is trained."""

ENCODER, SIZE = Setting("parts", frozen=range(7)), Size(13, 8, 4)


def training(steps: int = 1) -> Callable[[Model], Any]:
    """Trains on one microbatch, through a frozen layer above the first trained one."""

    async def schedule(model: Model) -> None:
        frozen = model.dist.setting.frozen
        held = [model.load_weights(layer) for layer in range(model.LAYERS)]
        for step in range(steps):
            inputs = [model.get_activation([0], step)]
            for layer, (weight, _) in enumerate(held):
                inputs.append(model.forward(layer, inputs[layer], weight))
            grad, new = model.loss(inputs.pop()), {}
            for layer in range(model.LAYERS - 1, 0, -1):
                inp = inputs.pop()
                if layer not in frozen:
                    more = (held[layer][0],) if model.dist.setting.layer == "block" else ()
                    new[layer] = model.backward_weight(layer, inp, grad, *more)
                if layer > 1:
                    grad = model.backward_input(layer, inp, grad, held[layer][0])
            for layer, weight_grad in new.items():
                held[layer] = model.update(layer, weight_grad, *held[layer])
        for layer in new:
            model.set_final_weight(layer, held[layer][0])

    return schedule


class Start:
    """Microbatch 0 of one rank, after its forward: the values of each layer of FROZEN."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.held = [model.load_weights(layer) for layer in range(4)]
        self.inputs = [model.get_activation([0])]
        for layer, (weight, _) in enumerate(self.held):
            self.inputs.append(model.forward(layer, self.inputs[layer], weight))
        self.grad = model.loss(self.inputs[4])

    def down_to(self, layer: int) -> Any:
        grad = self.grad
        for above in range(3, layer, -1):
            grad = self.model.backward_input(above, self.inputs[above], grad, self.held[above][0])
        return grad

    def call(self, name: str, layer: int) -> Any:
        weight = () if name == "backward_weight" else (self.held[layer][0],)
        return getattr(self.model, name)(layer, self.inputs[layer], self.down_to(layer), *weight)


REFUSED: list[tuple[Callable[[Start], Any], Refused]] = [
    (lambda s: s.call("backward_weight", 2), Refused("frozen layer", layer=2)),
    (lambda s: s.call("backward", 2), Refused("frozen layer", layer=2)),
    (lambda s: s.call("backward_input", 1), Refused("input needs no gradient", layer=1)),
    (lambda s: s.call("backward", 1), Refused("input needs no gradient", layer=1)),
    (lambda s: s.model.update(2, s.model.fake_grad(2, [0]), *s.held[2]), Refused("frozen layer", layer=2)),
    (lambda s: s.model.set_final_weight(2, s.held[2][0]), Refused("frozen layer", layer=2)),
]


@pytest.mark.parametrize(("wrong", "expected"), REFUSED)
def test_what_a_frozen_layer_does_not_have_is_refused(wrong: Callable[[Start], Any], expected: Refused) -> None:
    expected.require(run(lambda model: wrong(Start(model)), 4, 1, 1, setting=FROZEN).error)


def test_a_frozen_layer_needs_no_final_weight_and_every_other_layer_does() -> None:
    async def schedule(model: Model) -> None:
        start = Start(model)
        model.set_final_weight(3, model.update(3, start.call("backward_weight", 3), *start.held[3])[0])

    outcome = run(schedule, 4, 1, 1, setting=FROZEN)
    Refused("no final weight", layer=1).require(referee(outcome.trace).error)
    assert referee(finished(training(), 4, 1, 1, setting=FROZEN).trace).error is None


@pytest.mark.parametrize(
    "fields",
    [
        {"frozen": "01"},
        {"frozen": (0.5,)},
        {"frozen": (-1,)},
        {"frozen": {0: 1}},
        {"frozen": 0},
        {"frozen": (0,), "task": "infer"},
        {"frozen": (0,), "lag": 1},
        {"frozen": (0,), "clip": True},
        {"frozen": (0,), "layer": "attention"},
        {"frozen": (0,), "costs": "stages"},
        {"whole": 1},
    ],
)
def test_what_is_no_setting_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RuleError, match=r"frozen|whole"):
        Setting(**{"costs": "parts", **fields})


@pytest.mark.parametrize("frozen", [(3,), (0, 1, 2)])
def test_some_layer_of_the_game_is_trained(frozen: tuple[int, ...]) -> None:
    with Refused("every layer frozen", layers=3):
        Game.of(Size(3, 1, 1), Setting("parts", frozen=frozen))


def test_settings_come_back_from_a_trace() -> None:
    setting = Setting("parts", frozen=(2, 0, 2), whole=True)
    trace = finished(training(), 4, 1, 1, setting=setting).trace
    assert trace_from_json(trace_to_json(trace)).setting == setting
    assert setting.frozen == (0, 2)
    for name, content in (("frozen", "0"), ("frozen", ["0"]), ("whole", 1)):
        data = json.loads(trace_to_json(trace))
        data[name] = content
        with pytest.raises(TraceError, match=name):
            trace_from_json(json.dumps(data))


# --- A forged trace ---


@pytest.mark.parametrize(
    ("frozen", "expected"),
    [((0, 1, 2), Refused("input needs no gradient", layer=3)), ((0, 2, 3), Refused("frozen layer", layer=3))],
)
def test_a_forged_setting_is_refused_by_the_referee(frozen: Sequence[int], expected: Refused) -> None:
    data = json.loads(trace_to_json(finished(training(), 4, 1, 1, setting=FROZEN).trace))
    data["frozen"] = [*frozen]
    expected.require(referee(trace_from_json(json.dumps(data))).error)


async def sharded(model: Model) -> None:
    """ZeRO-1: each rank updates a shard."""
    weight, _ = model.load_weights(0)
    own, state = model.load_weights(0, model.rank, model.RANKS)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    grad = await model.scatterreduce(grad, 0)
    model.set_final_weight(0, model.update(0, grad, own, state)[0])


def test_an_update_of_a_shard_is_refused_where_it_needs_the_full_matrix() -> None:
    trace = finished(sharded, 1, 2, 2).trace
    assert referee(trace).error is None
    Refused("matrix not whole").require(run(sharded, 1, 2, 2, setting=Setting(whole=True)).error)
    data = json.loads(trace_to_json(trace))
    data.update({"costs": "classic", "whole": True})
    Refused("matrix not whole").require(referee(trace_from_json(json.dumps(data))).error)


# --- Tensors and bounds ---


@pytest.mark.parametrize(
    ("frozen", "least"), [((), 11), ((0,), 9), ((0, 1), 7), ((0, 1, 2), 5), ((3,), 10), ((0, 2), 8)]
)
def test_the_time_of_one_microbatch_on_one_rank_is_the_bound(frozen: tuple[int, ...], least: float) -> None:
    """Four forwards, a weight half of each trained layer, and an input half of each layer above the first of them."""
    assert time_bound(Size(4, 1, 1), Setting("parts", frozen=frozen)).least == least


def test_a_frozen_stage_bounds_the_time_of_a_pipeline() -> None:
    counts = [0, 6, 9, 11, 13]
    stages = [(range(a, b), 1) for a, b in pairwise(counts)]
    report = referee(finished(frozen_encoder, *SIZE, setting=ENCODER).trace)
    assert (report.error, report.timesteps) == (None, 62)
    # 48 steps of rank 0; then the last microbatch goes through 7 layers, back through 5, and layer 7 gets its gradient.
    assert pipeline_time_bound(SIZE, ENCODER, stages).least == 48 + 7 + 5 + 1
    assert pipeline_time_bound(SIZE, Setting("parts"), stages).least > 100

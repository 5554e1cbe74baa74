"""Labels never lie in the extended games: halves, steps, parts, token shares, experts, replicas and tiers.

Random programs, most of whose calls are refused, and schedules that train: each value holds the numbers that one
device computes for its label.
"""

from __future__ import annotations

import random
from contextlib import suppress
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    COSTS,
    Activation,
    ActivationGrad,
    Costs,
    IncompleteError,
    Model,
    OptState,
    Setting,
    Size,
    Trace,
    Weight,
    WeightGrad,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.game.costs import CLASSIC
from lib.game.tiers import Tier
from lib.judging.recompute import Recomputation
from lib.schedules import pipeline, sequence_parallel, tensor_parallel, zb_h1
from lib.values.kinds import Parked
from tests.lib.values.test_labels import attempt
from tests.support import finished
from tests.support.examples import examples
from tests.support.extended_tensors import Truth, execute
from tests.support.schedules import shards, tiers

ALL = Costs(
    "everything",
    ticks=MappingProxyType(
        {**CLASSIC.ticks, **dict.fromkeys(("backward_input", "backward_weight", "dispatch", "collect"), 5)}
    ),
    tiers=MappingProxyType({"host": Tier(3, 3)}),
)


def labels_are_true(trace: Trace) -> set[str]:
    """Compares every value of a trace with its label. Returns the kinds of labels that were there, in words."""
    recomputation = Recomputation(trace)
    with suppress(IncompleteError):
        recomputation.run()
    truth, executed = Truth(trace), execute(trace)
    seen: set[str] = set()
    for rank, numbers in zip(recomputation.ranks, executed):
        assert rank.at == len(rank.ops)
        for number, value in rank.values.items():
            claimed = truth.of(value)
            assert claimed.keys() == numbers[number].keys(), value
            for place, row in claimed.items():
                np.testing.assert_allclose(numbers[number][place], row, rtol=1e-9, atol=1e-9, err_msg=f"{value}")
            seen |= {word for word in ("part", "tokens", "step 1", "replica", "averaged", "host") if word in str(value)}
    return seen


class Chaos:
    """A player who calls anything with anything that fits by layer, and goes on when it is refused."""

    def __init__(self, seed: int, calls: int) -> None:
        self.seed = seed
        self.calls = calls

    async def __call__(self, model: Model) -> None:
        mine, together = random.Random(self.seed * 31 + model.rank), random.Random(self.seed)
        pool: list[Any] = [*model.load_weights(0, tier="host")]
        for layer in range(model.LAYERS):
            pool += model.load_weights(layer)
            pool += model.load_weights(layer, model.rank, model.RANKS)
        own = range(model.rank % model.BATCHES, model.BATCHES, model.RANKS)
        for step in range(model.dist.setting.steps):
            pool += [model.get_activation(own, step), model.get_activation(range(model.BATCHES), step)]
        for _ in range(self.calls):
            await attempt(pool, self.anything, model, pool, mine)
            if together.random() < 0.35:
                step = together.randrange(model.dist.setting.steps)
                await attempt(pool, self.meet, model, pool, mine, together.randrange(8), step)

    def anything(self, model: Model, pool: list[Any], draw: random.Random) -> Any:
        layer = draw.randrange(model.LAYERS)

        def pick(*kinds: type, of: int = layer) -> Any:
            fit = [value for value in pool if isinstance(value, kinds) and value.layer == of]
            return draw.choice(fit[-6:] if draw.random() < 0.5 and fit else fit or pool)

        match draw.randrange(14):
            case 0 | 1 | 2:
                return model.forward(layer, pick(Activation), pick(Weight))
            case 3:
                return model.loss(pick(Activation, of=model.LAYERS))
            case 4 | 5 | 6:
                return model.backward(layer, pick(Activation), pick(ActivationGrad), pick(Weight))
            case 7:
                return model.backward_input(layer, pick(Activation), pick(ActivationGrad), pick(Weight))
            case 8:
                weight = [] if model.dist.setting.layer == "dense" else [pick(Weight)]
                return model.backward_weight(layer, pick(Activation), pick(ActivationGrad), *weight)
            case 9:
                return pick(WeightGrad) + pick(WeightGrad)
            case 10:
                value = pick(Weight, OptState, WeightGrad, Activation, ActivationGrad)
                return value.shard(draw.randrange(4), draw.choice([1, 2, 3, 4]))
            case 11:
                return model.offload(pick(Weight, Activation, WeightGrad))
            case 12:
                return model.fetch(pick(Parked))
            case _:
                return model.update(layer, pick(WeightGrad), pick(Weight), pick(OptState))

    def meet(self, model: Model, pool: list[Any], draw: random.Random, which: int, step: int) -> Any:
        """A collective that every rank joins with something of one kind: otherwise the others would wait."""
        setting, layer = model.dist.setting, which % model.LAYERS

        def any_of(kind: type, spare: Any) -> Any:
            fit = [value for value in pool if isinstance(value, kind) and value.layer == spare.layer]
            return draw.choice([*fit[-4:], spare])

        inputs = model.get_activation(range(model.rank % model.BATCHES, model.BATCHES, model.RANKS), step)
        zero, weight = model.fake_grad(layer, [], step), model.load_weights(layer, model.rank, model.RANKS)[0]
        if which < 2:
            return model.allreduce(any_of(WeightGrad, zero), layer)
        if which == 2:
            return model.scatterreduce(any_of(WeightGrad, zero), layer)
        if which == 3:
            return model.allgather(any_of(Weight, weight), layer)
        if setting.layer == "dense":
            whole = model.load_weights(layer)[0]
            return model.allreduce(any_of(Weight, whole), layer) if setting.task == "local" else None
        if setting.layer == "experts" and which > 4:
            value = any_of(Activation, inputs)
            back = list(range(model.rank % model.BATCHES, model.BATCHES, model.RANKS))
            return model.dispatch(value, layer) if which < 7 else model.collect(value, layer, back)
        name = ("allreduce", "allgather", "scatterreduce", "allreduce")[which - 4]
        late = max((value.layer for value in pool if isinstance(value, Activation)), default=0)
        spares = [value for value in pool if isinstance(value, Activation) and value.layer == late]
        return getattr(model, name)(draw.choice([*spares, inputs]), late)


GAMES = [
    Setting(ALL, steps=2),
    Setting(ALL, layer="block", steps=2),
    Setting(ALL, layer="experts"),
    Setting(ALL, steps=3, task="local"),
]


@pytest.mark.sampled(1)
@pytest.mark.parametrize("setting", GAMES, ids=lambda setting: f"{setting.layer}, {setting.task}")
@examples(12)
@given(st.integers(1, 2), st.sampled_from([1, 2, 3, 4]), st.sampled_from([1, 2, 4]), st.integers(0, 10**9))
def test_every_value_of_a_random_program_is_what_it_says(
    setting: Setting, layers: int, batches: int, ranks: int, seed: int
) -> None:
    outcome = finished(Chaos(seed, calls=60), layers, batches, ranks, setting=setting)
    labels_are_true(outcome.trace)
    assert trace_from_json(trace_to_json(outcome.trace)) == outcome.trace


SCHEDULES = [
    (pipeline(zb_h1), Size(2, 3, 2), Setting(COSTS["parts"], steps=2)),
    (tensor_parallel, Size(2, 2, 4), Setting(ALL, layer="block")),
    (sequence_parallel, Size(2, 2, 4), Setting(ALL, layer="block")),
    (shards.experts_in_turn, Size(2, 4, 2), Setting(ALL, layer="experts")),
    (shards.local_sgd(2), Size(2, 2, 2), Setting(ALL, steps=4, task="local")),
    (shards.data_parallel_steps, Size(2, 2, 2), Setting(ALL, steps=3)),
    (tiers.stream_inference_in_turn, Size(3, 2, 1), Setting(ALL, task="infer")),
]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("schedule", "size", "setting"), SCHEDULES)
def test_every_value_of_a_schedule_is_what_it_says(schedule: Any, size: Size, setting: Setting) -> None:
    outcome = finished(schedule, *size, setting=setting)
    labels_are_true(outcome.trace)


@pytest.mark.slow
def test_schedules_and_random_programs_get_somewhere() -> None:
    words: set[str] = set()
    for schedule, size, setting in SCHEDULES[1:]:
        words |= labels_are_true(run(schedule, *size, setting=setting).trace)
    done: set[str] = set()
    for seed in range(6):
        for setting in GAMES:
            trace = run(Chaos(seed, calls=100), 1, 2, 2, setting=setting).trace
            done |= {f"{op.name} in {setting.layer}" for ops in trace.ranks for op in ops}
    assert words == {"part", "tokens", "step 1", "replica", "averaged", "host"}
    halves = {f"{half} in {layer}" for half in ("backward_input", "backward_weight") for layer in ("dense", "block")}
    assert {*halves, "update in dense", "update in block", "fetch in experts", "offload in dense"} <= done
    assert {"dispatch in experts", "collect in experts", "allreduce in block", "scatterreduce in block"} <= done

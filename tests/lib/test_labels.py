"""Labels never lie: whatever a player does, every value holds the numbers that its label claims.

Random programs, most of whose calls are refused, are run; each value that was made all the same is compared with
the numbers that one device computes for its label.
"""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import (
    Activation,
    ActivationGrad,
    IncompleteError,
    Model,
    OptState,
    PuzzleError,
    Size,
    Trace,
    Value,
    Weight,
    WeightGrad,
    run,
)
from lib.judging.recompute import Retrace
from tests.support import CLASSICS, Classic
from tests.support.examples import examples
from tests.support.tensor_interpreter import HIDDEN, Data, backward, execute, forward, update


class Truth:
    """What one device computes: every activation and gradient of every batch, and the updated weights."""

    def __init__(self, size: Size) -> None:
        self.data = data = Data(size)
        self.inputs: dict[tuple[int, int], Any] = {}
        self.grads: dict[tuple[int, int], Any] = {}
        self.weight_grads: dict[tuple[int, int], Any] = {}
        for batch in range(size.batches):
            self.inputs[0, batch] = data.inputs[batch]
            for layer, weight in enumerate(data.weights):
                self.inputs[layer + 1, batch] = forward(self.inputs[layer, batch], weight)
            grad = self.grads[size.layers - 1, batch] = self.inputs[size.layers, batch]
            for layer in reversed(range(size.layers)):
                weight_grad, grad = backward(self.inputs[layer, batch], grad, data.weights[layer])
                self.weight_grads[layer, batch], self.grads[layer - 1, batch] = weight_grad, grad
        self.updated = [
            update(self.weight_grad(layer, range(size.batches)), data.weights[layer], data.states[layer])
            for layer in range(size.layers)
        ]

    def weight_grad(self, layer: int, batches: Any) -> Any:
        return sum((self.weight_grads[layer, batch] for batch in batches), np.zeros((HIDDEN, HIDDEN)))

    def of(self, value: Value) -> dict[int, Any]:
        """The numbers that a label stands for: rows of a tensor, or activations by batch."""
        match value:
            case Activation():
                return {batch: self.inputs[value.layer, batch] for batch in value.batches}
            case ActivationGrad():
                return {batch: self.grads[value.layer, batch] for batch in value.batches}
            case WeightGrad():
                tensor = self.weight_grad(value.layer, value.batches)
            case Weight(step=0):
                tensor = self.data.weights[value.layer]
            case OptState(step=0):
                tensor = self.data.states[value.layer]
            case _:
                tensor = self.updated[value.layer][isinstance(value, OptState)]
        spans = ((i * HIDDEN // value.total, (i + 1) * HIDDEN // value.total) for i in value.shards)  # type: ignore[attr-defined]
        return {row: tensor[row] for start, end in spans for row in range(start, end)}


def labels_are_true(trace: Trace) -> int:
    """Compares every value of a trace with its label; returns how many there are."""
    retrace = Retrace(trace)
    with suppress(IncompleteError):
        retrace.run()
    truth, (values, _) = Truth(trace.size), execute(trace)
    compared = 0
    for part, numbers in zip(retrace.parts, values):
        assert part.at == len(part.ops)
        for number, value in part.values.items():
            claimed = truth.of(value)
            assert claimed.keys() == numbers[number].keys(), value
            assert all(np.array_equal(claimed[key], numbers[number][key]) for key in claimed), value
            compared += 1
    return compared


@pytest.mark.parametrize("classic", CLASSICS[:-1], ids=lambda classic: classic.slug)
def test_every_value_of_the_classics_is_what_it_says(classic: Classic) -> None:
    assert labels_are_true(run(classic.solution, *classic.size).trace) > 10


class Chaos:
    """A player who calls anything with anything, and goes on when it is refused."""

    def __init__(self, seed: int, calls: int) -> None:
        self.seed = seed
        self.calls = calls

    async def __call__(self, model: Model) -> None:
        mine, together = random.Random(self.seed * 31 + model.rank), random.Random(self.seed)
        pool: list[Any] = []
        for layer in range(model.LAYERS):
            pool += model.load_weights(layer)
            pool += model.load_weights(layer, model.rank, model.RANKS)
        pool.append(model.get_activation(range(model.rank % model.BATCHES, model.BATCHES, model.RANKS)))
        pool.append(model.get_activation(range(model.BATCHES)))
        for _ in range(self.calls):
            await attempt(pool, anything, model, pool, mine)
            if together.random() < 0.2:
                name = together.choice(["allreduce", "allgather", "scatterreduce"])
                await attempt(pool, meet, model, pool, mine, name, together.randrange(model.LAYERS))


async def attempt(pool: list[Any], call: Any, *args: Any) -> None:
    """Adds what a call yields to the pool, unless it is refused."""
    try:
        made = call(*args)
        if hasattr(made, "__await__"):
            made = await made
    except (PuzzleError, AttributeError, TypeError):
        return
    pool += made if isinstance(made, tuple) else [made]


def anything(model: Model, pool: list[Any], draw: random.Random) -> Any:
    """Some call with some values of the kinds that it takes."""

    def pick(*kinds: type) -> Any:
        return draw.choice([value for value in pool if isinstance(value, kinds)] or pool)

    sharded = (Weight, OptState, WeightGrad)
    layer = draw.randrange(model.LAYERS)
    match draw.randrange(9):
        case 0 | 1:
            return model.forward(layer, pick(Activation), pick(Weight))
        case 2:
            return model.loss(pick(Activation))
        case 3 | 4:
            return model.backward(layer, pick(Activation), pick(ActivationGrad), pick(Weight))
        case 5:
            return pick(WeightGrad) + pick(WeightGrad)
        case 6:
            return pick(*sharded).combine(pick(*sharded))
        case 7:
            return pick(*sharded).shard(draw.randrange(3), draw.randint(1, 4))
        case _:
            return model.update(layer, pick(WeightGrad), pick(Weight), pick(OptState))


def meet(model: Model, pool: list[Any], draw: random.Random, name: str, layer: int) -> Any:
    """A collective that every rank joins, if only with a zero or a shard: otherwise the others would wait."""
    kind = Weight if name == "allgather" else WeightGrad
    fit = [value for value in pool if isinstance(value, kind) and value.layer == layer]
    spare = model.load_weights(layer, model.rank, model.RANKS)[0] if kind is Weight else model.fake_grad(layer, [])
    return getattr(model, name)(draw.choice([*fit, spare]), layer)


@examples(60)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**9))
def test_every_value_of_a_random_program_is_what_it_says(layers: int, batches: int, ranks: int, seed: int) -> None:
    outcome = run(Chaos(seed, calls=80), layers, batches, ranks)
    assert outcome.error is None
    assert labels_are_true(outcome.trace) > 0


def test_random_programs_get_somewhere() -> None:
    traces = [run(Chaos(seed, calls=100), 1, 2, 2).trace for seed in range(40)]
    done = {op.name for trace in traces for ops in trace.ranks for op in ops}
    assert {"backward", "add", "combine", "shard", "update", "allreduce", "allgather", "scatterreduce"} <= done

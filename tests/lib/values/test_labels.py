"""Labels never lie: whatever a player does, every value holds the numbers that its label claims.

Random programs, most of whose calls are refused, are run; each value that was made all the same is compared with
the numbers that one device computes for its label.
"""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace
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
    PuzzleError,
    Setting,
    Size,
    Trace,
    Value,
    Weight,
    WeightGrad,
    run,
    trace_to_json,
)
from lib.judging.recompute import Recomputation
from tests.support import CLASSICS, Classic, finished
from tests.support.examples import examples
from tests.support.tensor_interpreter import HIDDEN, Data, backward, execute, forward, loss, update

ORDERS = [(0, 1, 2, 3), (3, 2, 1, 0), (2, 0, 3, 1)]


class Truth:
    """The values that one device computes: every activation and gradient of every batch, and the updated weights."""

    def __init__(self, size: Size) -> None:
        self.data = data = Data(size)
        self.inputs: dict[tuple[int, int], Any] = {}
        self.grads: dict[tuple[int, int], Any] = {}
        self.weight_grads: dict[tuple[int, int], Any] = {}
        for batch in range(size.batches):
            self.inputs[0, batch] = data.inputs[batch]
            for layer, weight in enumerate(data.weights):
                self.inputs[layer + 1, batch] = forward(self.inputs[layer, batch], weight)
            grad = self.grads[size.layers - 1, batch] = loss(self.inputs[size.layers, batch])
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
    recomputation = Recomputation(trace)
    with suppress(IncompleteError):
        recomputation.run()
    truth, values = Truth(trace.size), execute(trace)
    compared = 0
    for part, numbers in zip(recomputation.ranks, values):
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
                mesh = dict(model.dist.setting.mesh)
                group = together.choice([None, *mesh]) if mesh else None
                await attempt(pool, meet, model, pool, mine, name, together.randrange(model.LAYERS), group)


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


def meet(model: Model, pool: list[Any], draw: random.Random, name: str, layer: int, group: str | None) -> Any:
    """A collective that every rank joins, if only with a zero or a shard: otherwise the others would wait."""
    kind = Weight if name == "allgather" else WeightGrad
    fit = [value for value in pool if isinstance(value, kind) and value.layer == layer]
    spare = model.load_weights(layer, model.rank, model.RANKS)[0] if kind is Weight else model.fake_grad(layer, [])
    return getattr(model, name)(draw.choice([*fit, spare]), layer, group=group)


MESH = (("dp", 2), ("tp", 2))


class Nested:
    """A player who sums gradients along one axis after the other, cuts them on the way and gathers them again: in
    buckets, with handles in place of values, and with awaits wherever chance has them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    async def __call__(self, model: Model) -> None:
        mine, together = random.Random(self.seed * 31 + model.rank), random.Random(self.seed)
        weights = [model.load_weights(layer)[0] for layer in range(model.LAYERS)]
        late: list[Any] = []
        for _ in range(3):
            layers = together.sample(range(model.LAYERS), together.randint(1, model.LAYERS))
            values: Any = [self.gradient(model, weights, layer, mine) for layer in layers]
            done, cut = set[str](), list[str]()
            for _ in range(together.randint(2, 6)):
                axis = together.choice(["dp", "tp"])
                name = together.choice(["allreduce", "scatterreduce"])
                if axis in done:
                    if not cut:
                        break
                    name, axis = "allgather", cut.pop()
                elif name == "scatterreduce":
                    cut.append(axis)
                done.add(axis)
                call: Any = getattr(model, name)(*self.bucket(values, layers, mine), group=axis)
                if mine.random() < 0.5:
                    late.append(call)
                    values = call
                else:
                    made = await call
                    values = made if isinstance(made, list) else [made]
                if mine.random() < 0.5:
                    model.forward(0, model.get_activation(range(mine.randint(1, model.BATCHES))), weights[0])
            await self.letters(model, together)
        mine.shuffle(late)
        for call in late:
            await call

    def gradient(self, model: Model, weights: list[Weight], layer: int, draw: random.Random) -> WeightGrad:
        """That of this rank's batches; or a zero."""
        batches = range(model.rank, model.BATCHES, model.RANKS)
        if not batches or draw.random() < 0.3:
            return model.fake_grad(layer, [])
        inputs = [model.get_activation(batches)]
        for weight in weights:
            inputs.append(model.forward(weight.layer, inputs[-1], weight))
        grad = model.loss(inputs[-1])
        for at in reversed(range(layer, model.LAYERS)):
            found, grad = model.backward(at, inputs[at], grad, weights[at])
        return found

    def bucket(self, values: Any, layers: list[int], draw: random.Random) -> tuple[Any, Any]:
        if not isinstance(values, list):
            return (values, layers) if values.listed else (values, layers[0])
        return (values[0], layers[0]) if len(layers) == 1 else (values, layers)

    async def letters(self, model: Model, together: random.Random) -> None:
        """Each rank sends weights to the next with different tags, which reads them in another order."""
        tags = range(3)
        sent = [
            model.pass_to((model.rank + 1) % model.RANKS, model.load_weights(0, tag, 4), tag)
            for tag in together.sample(tags, 3)
        ]
        for handle in sent:
            await handle
        for tag in together.sample(tags, 3):
            weight, state = await model.receive((model.rank - 1) % model.RANKS, tag)
            assert (weight.shards, state.shards) == (frozenset((tag,)),) * 2


OVERLAPPING = [replace(COSTS["overlap"], name="streams", lanes=lanes) for lanes in ("one", "group")]


@examples(40)
@given(st.integers(1, 3), st.integers(1, 5), st.integers(0, 10**9), st.sampled_from(OVERLAPPING))
def test_every_value_of_a_random_program_with_overlap_is_what_it_says(
    layers: int, batches: int, seed: int, costs: Costs
) -> None:
    traces = [run(Nested(seed), layers, batches, 4, order, setting=Setting(costs, MESH)) for order in ORDERS]
    assert [outcome.error for outcome in traces] == [None] * len(ORDERS)
    assert len({trace_to_json(outcome.trace) for outcome in traces}) == 1
    assert labels_are_true(traces[0].trace) > 0


@examples(30)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(0, 10**9))
def test_every_value_of_a_random_program_in_groups_is_what_it_says(layers: int, batches: int, seed: int) -> None:
    outcome = finished(Chaos(seed, calls=60), layers, batches, 4, setting=Setting(mesh=MESH))
    assert labels_are_true(outcome.trace) > 0


@examples(60)
@given(st.integers(1, 2), st.integers(1, 3), st.integers(1, 3), st.integers(0, 10**9))
def test_every_value_of_a_random_program_is_what_it_says(layers: int, batches: int, ranks: int, seed: int) -> None:
    outcome = finished(Chaos(seed, calls=80), layers, batches, ranks)
    assert labels_are_true(outcome.trace) > 0


@pytest.mark.slow
def test_random_programs_with_overlap_get_somewhere() -> None:
    seen: set[str] = set()
    for seed in range(20):
        trace = run(Nested(seed), 3, 4, 4, setting=Setting(OVERLAPPING[0], MESH)).trace
        for ops in trace.ranks:
            awaited = {op.args[0]: i for i, op in enumerate(ops) if op.name == "await"}
            late = {number for i, op in enumerate(ops) if i in awaited for number in op.outputs if awaited[i] > i + 1}
            seen |= {op.name for op in ops}
            seen |= {"bucket" for op in ops if op.name == "allgather" and len(op.outputs) > 1}
            seen |= {"chain" for i, op in enumerate(ops) if i in awaited and late & {*op.inputs}}
            seen |= {"tag" for op in ops if op.name == "receive" and len(op.args) > 1}
        shards = {v.total for rank in executed(trace) for v in rank if isinstance(v, WeightGrad)}
        seen |= {"nested"} if 4 in shards else set()
    assert {"bucket", "chain", "tag", "nested", "allreduce", "scatterreduce", "allgather", "await"} <= seen


def executed(trace: Trace) -> list[list[Value]]:
    """All values of a trace, by rank."""
    recomputation = Recomputation(trace)
    with suppress(IncompleteError):
        recomputation.run()
    return [[*rank.values.values()] for rank in recomputation.ranks]


@pytest.mark.slow
def test_random_programs_get_somewhere() -> None:
    traces = [run(Chaos(seed, calls=100), 1, 2, 2).trace for seed in range(40)]
    done = {op.name for trace in traces for ops in trace.ranks for op in ops}
    assert {"backward", "add", "combine", "shard", "update", "allreduce", "allgather", "scatterreduce"} <= done

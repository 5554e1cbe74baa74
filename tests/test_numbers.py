"""Independent evidence: traces executed on tiny tensors, in a few plain lines that know nothing of the rules.

A run that the referee accepts gives the weights that one device would have computed; a sum or an update that it
refuses would have given others.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib import Model, Size, Trace, referee, run
from tests.support import CLASSICS, Classic

np = pytest.importorskip("numpy")

HIDDEN, LENGTH, RATE, DECAY = 8, 3, 0.5, 0.5


class Data:
    """A problem in small whole numbers and halves, so that sums are exact in any order."""

    def __init__(self, size: Size) -> None:
        draw = np.random.default_rng(5)
        self.weights = [draw.integers(-1, 2, (HIDDEN, HIDDEN)).astype(float) for _ in range(size.layers)]
        self.states = [draw.integers(-1, 2, (HIDDEN, HIDDEN)).astype(float) for _ in range(size.layers)]
        self.inputs = {b: draw.integers(-1, 2, (LENGTH, HIDDEN)).astype(float) for b in range(size.batches)}


def forward(inp: Any, weight: Any) -> Any:
    return np.maximum(inp @ weight, 0)


def backward(inp: Any, grad: Any, weight: Any) -> tuple[Any, Any]:
    grad = grad * (inp @ weight > 0)
    return inp.T @ grad, grad @ weight.T


def update(grad: Any, weight: Any, state: Any) -> tuple[Any, Any]:
    state = DECAY * state + grad
    return weight - RATE * state, state


def one_device(size: Size) -> list[Any]:
    """The weights after one step of plain training on all batches. The loss is half the squared output."""
    data = Data(size)
    grads = [np.zeros((HIDDEN, HIDDEN)) for _ in range(size.layers)]
    for inp in data.inputs.values():
        inputs = [inp]
        for weight in data.weights:
            inputs.append(forward(inputs[-1], weight))
        grad = inputs.pop()
        for layer in reversed(range(size.layers)):
            weight_grad, grad = backward(inputs[layer], grad, data.weights[layer])
            grads[layer] += weight_grad
    return [update(*triple)[0] for triple in zip(grads, data.weights, data.states)]


# A sharded tensor is {row: its content}; an activation {batch: array}. Both make `whole` and `sum` plain.


def rows(tensor: Any, shard: int = 0, total: int = 1) -> dict[int, Any]:
    return {r: tensor[r] for r in range(shard * HIDDEN // total, (shard + 1) * HIDDEN // total)}


def whole(parts: dict[int, Any]) -> Any:
    return np.stack([parts[r] for r in range(HIDDEN)])


def summed(values: list[dict[int, Any]]) -> dict[int, Any]:
    total: dict[int, Any] = defaultdict(float)
    for value in values:
        for r, row in value.items():
            total[r] = total[r] + row
    return dict(total)


def joined(values: list[dict[int, Any]]) -> dict[int, Any]:
    return {r: row for value in values for r, row in value.items()}


def execute(trace: Trace) -> list[dict[int, dict[int, Any]]]:
    """Runs a trace on tensors. Returns each rank's final weights."""
    size, data = trace.size, Data(trace.size)
    ranks = range(size.ranks)
    values: list[dict[int, Any]] = [{} for _ in ranks]
    final: list[dict[int, Any]] = [{} for _ in ranks]
    at, mail = [0] * size.ranks, defaultdict(list)
    meeting: dict[int, Any] = {}

    def perform(rank: int, op: Any) -> bool:
        used = [values[rank][n] for n in op.used]
        if op.name in ("allreduce", "allgather", "scatterreduce"):
            meeting[rank] = (op, used[0])
            if len(meeting) < size.ranks:
                return False
            brought = [meeting[r][1] for r in ranks]
            result = joined(brought) if op.name == "allgather" else summed(brought)
            for r in ranks:
                kept = rows(whole(result), r, size.ranks) if op.name == "scatterreduce" else result
                values[r][meeting[r][0].made[0]] = kept
                if r != rank:
                    at[r] += 1
            meeting.clear()
            return True
        if op.name == "pass_to":
            mail[rank, op.args[0]].append(used)
        elif op.name == "receive":
            if not mail[op.args[0], rank]:
                return False
            values[rank].update(zip(op.made, mail[op.args[0], rank].pop(0)))
        elif op.name == "set_final_weight":
            final[rank][op.layer] = used[0]
        else:
            values[rank].update(zip(op.made, compute(op, used)))
        return True

    def compute(op: Any, used: list[Any]) -> list[Any]:
        match op.name:
            case "load_weights":
                return [rows(data.weights[op.layer], *op.args), rows(data.states[op.layer], *op.args)]
            case "get_activation":
                return [{b: data.inputs[b] for b in op.batches}]
            case "fake_grad":
                return [rows(np.zeros((HIDDEN, HIDDEN)))]
            case "forward":
                return [{b: forward(inp, whole(used[1])) for b, inp in used[0].items()}]
            case "loss":
                return [used[0]]
            case "backward":
                pairs = {b: backward(inp, used[1][b], whole(used[2])) for b, inp in used[0].items()}
                return [
                    summed([rows(pair[0]) for pair in pairs.values()]),
                    {b: p[1] for b, p in pairs.items()},
                ]
            case "update":
                pairs = {r: update(used[0][r], weight, used[2][r]) for r, weight in used[1].items()}
                return [{r: pair[n] for r, pair in pairs.items()} for n in (0, 1)]
            case "add":
                return [summed(used)]
            case "combine":
                return [joined(used)]
            case "shard":
                wanted = rows(np.zeros((HIDDEN, HIDDEN)), *op.args)
                return [{r: used[0][r] for r in wanted}]
        return []

    moved = True
    while moved:
        moved = False
        for rank in ranks:
            while at[rank] < len(trace.ranks[rank]) and perform(rank, trace.ranks[rank][at[rank]]):
                at[rank] += 1
                moved = True
    assert at == [len(ops) for ops in trace.ranks]
    return final


def gives_the_weights_of_one_device(trace: Trace) -> bool:
    final = execute(trace)
    for layer, weight in enumerate(one_device(trace.size)):
        shards = [held[layer] for held in final if layer in held]
        if any(not np.array_equal(row, weight[r]) for shard in shards for r, row in shard.items()):
            return False
        if len(joined(shards)) < HIDDEN:
            return False
    return True


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_what_the_referee_accepts_is_what_one_device_computes(classic: Classic) -> None:
    size = classic.size if classic.size.ranks <= HIDDEN else classic.size._replace(ranks=8, layers=4, batches=2)
    trace = run(classic.solution, *size).trace
    assert referee(trace).error is None
    assert gives_the_weights_of_one_device(trace)


class Choices:
    """A random but legal data-parallel schedule: how batches are grouped, what is sharded, in which order."""

    def __init__(self, ranks: int, seed: int) -> None:
        self.ranks = ranks
        self.seed = seed

    def pick(self, what: str, n: int) -> int:
        return hash((self.seed, *map(ord, what))) % n

    async def __call__(self, model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        sharded = [self.pick(f"shard{layer}", 2) for layer in range(model.LAYERS)]
        for layer in range(model.LAYERS):
            part = (model.rank, model.RANKS) if sharded[layer] else (0, 1)
            weights[layer], states[layer] = model.load_weights(layer, *part)
            weight_grads[layer] = model.fake_grad(layer, [])

        mine = [b for b in range(model.BATCHES) if self.pick(f"rank of {b}", model.RANKS) == model.rank]
        rounds = 1 + self.pick("rounds", 2)
        for turn in range(rounds):
            group = mine[turn::rounds]
            if group:
                inputs[0] = model.get_activation(group)
            for layer in range(model.LAYERS):
                used = await self.whole(model, layer, sharded[layer])
                if group:
                    inputs[layer + 1] = model.forward(layer, inputs[layer], used)
            if group:
                grads[0] = model.loss(inputs[model.LAYERS])
            for layer in reversed(range(model.LAYERS)):
                used = await self.whole(model, layer, sharded[layer])
                if group:
                    new, grads[0] = model.backward(layer, inputs[layer], grads[0], used)
                    weight_grads[layer] = weight_grads[layer] + new

        for layer in range(model.LAYERS):
            if sharded[layer] and self.pick(f"scatter{layer}", 2):
                grad = await model.scatterreduce(weight_grads[layer], layer)
            else:
                grad = await model.allreduce(weight_grads[layer], layer)
                if sharded[layer] and self.pick(f"cut{layer}", 2):
                    grad = grad.shard(model.rank, model.RANKS)
            weights[layer], states[layer] = model.update(layer, grad, weights[layer], states[layer])
            model.set_final_weight(layer, weights[layer])

    async def whole(self, model: Model, layer: int, sharded: int) -> Any:
        return await model.allgather(model.weights[layer], layer) if sharded else model.weights[layer]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**9))
def test_random_legal_schedules_compute_what_one_device_does(layers: int, batches: int, ranks: int, seed: int) -> None:
    outcome = run(Choices(ranks, seed), layers, batches, ranks)
    assert outcome.error is None
    assert referee(outcome.trace).error is None
    assert gives_the_weights_of_one_device(outcome.trace)


# --- What is refused would have been wrong ------------------------------------------------------------

SIZE = Size(layers=2, batches=2, ranks=2)


def gradient(batches: list[int], weights: Any = None, layer: int = 0) -> Any:
    """The exact gradient of a layer over some batches."""
    data = Data(SIZE)
    weights = data.weights if weights is None else weights
    total = np.zeros((HIDDEN, HIDDEN))
    for batch in batches:
        inputs = [data.inputs[batch]]
        for weight in weights:
            inputs.append(forward(inputs[-1], weight))
        grad = inputs.pop()
        for at in reversed(range(SIZE.layers)):
            weight_grad, grad = backward(inputs[at], grad, weights[at])
            if at == layer:
                total += weight_grad
    return total


def stepped(grad: Any, weight: Any = None, state: Any = None) -> Any:
    data = Data(SIZE)
    return update(grad, data.weights[0] if weight is None else weight, data.states[0] if state is None else state)[0]


DATA = Data(SIZE)
BOTH = gradient([0, 1])
SPLICED = np.concatenate([gradient([0])[: HIDDEN // 2], gradient([1])[HIDDEN // 2 :]])

WRONG = {
    "batch 0 summed twice": stepped(gradient([0, 0, 1])),
    "one batch from two ranks": stepped(gradient([1]) + gradient([1])),
    "reduced twice": stepped(BOTH + BOTH),
    "an update without batch 1": stepped(gradient([0])),
    "layers summed": stepped(gradient([0]) + gradient([1], layer=1)),
    "shards of different batches joined": stepped(SPLICED),
    "the gradient of another layer": stepped(gradient([0, 1], layer=1)),
    "updated twice": stepped(BOTH, *update(BOTH, DATA.weights[0], DATA.states[0])),
    "an old weight with a new state": stepped(BOTH, None, update(BOTH, DATA.weights[0], DATA.states[0])[1]),
    "a forward with an updated weight": stepped(
        gradient([0, 1], [update(BOTH, DATA.weights[0], DATA.states[0])[0], DATA.weights[1]])
    ),
    "a weight that was never updated": DATA.weights[0],
    "a zero instead of a gradient": stepped(0 * BOTH),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_what_the_rules_refuse_would_have_given_other_weights(mistake: str) -> None:
    right = one_device(SIZE)[0]
    assert np.array_equal(stepped(BOTH), right)
    assert not np.array_equal(WRONG[mistake], right)

"""Independent evidence: traces executed on tiny tensors, in a few plain lines that know nothing of the rules.

A run that the referee accepts gives the weights that one device would have computed; a sum or an update that it
refuses would have given others.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import Model, Size, referee, run
from tests.support import CLASSICS, Classic, finished
from tests.support.examples import examples
from tests.support.tensor_interpreter import HIDDEN, Data, Truth, outcome, update


@pytest.mark.parametrize("classic", CLASSICS, ids=lambda classic: classic.slug)
def test_what_the_referee_accepts_is_what_one_device_computes(classic: Classic) -> None:
    size = classic.size if classic.size.ranks <= HIDDEN else classic.size._replace(ranks=8, layers=4, batches=2)
    trace = run(classic.solution, *size).trace
    assert referee(trace).error is None
    assert outcome(trace) == "right"


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


@examples(60)
@given(st.integers(1, 3), st.integers(1, 4), st.integers(1, 4), st.integers(0, 10**9))
def test_random_legal_schedules_compute_what_one_device_does(layers: int, batches: int, ranks: int, seed: int) -> None:
    played = finished(Choices(ranks, seed), layers, batches, ranks)
    assert referee(played.trace).error is None
    assert outcome(played.trace) == "right"


# --- What is refused would have been wrong ------------------------------------------------------------

SIZE = Size(layers=2, batches=2, ranks=2)


def gradient(batches: list[int], weights: Any = None, layer: int = 0) -> Any:
    """The exact gradient of a layer over some batches."""
    truth = Truth(SIZE)
    truth.data.weights = weights or truth.data.weights
    return truth.grad(0, None, layer, batches)


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
    right = Truth(SIZE).weights_after(1)[0]
    assert np.array_equal(stepped(BOTH), right)
    assert not np.array_equal(WRONG[mistake], right)

"""Training and inference on a single device, step by step: the weights or outputs that a replay must reach.

It knows nothing of ranks, groups or lanes. Replicas that train alone (local SGD) it trains one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import add

import numpy as np

from lib.engine.collectives import Array
from lib.values.replicas import Average

from .workload import Workload

Replica = tuple[list[Array], list[Array]]
"""Weights and states, by layer."""


def outputs(workload: Workload) -> list[Array]:
    """The last layer's output for each batch, with the weights as they are loaded."""
    weights = [workload.weight(layer) for layer in range(workload.size.layers)]
    return [_inputs(workload, weights, batch, 0)[-1] for batch in range(workload.size.batches)]


def trained(
    workload: Workload, averages: Sequence[Average] = (), versions: Mapping[int, int] | None = None
) -> list[Array]:
    """The weights of every layer after all steps. `averages` are those of replicas that trained alone before;
    `versions` has the steps whose gradients were made with older weights, and of which step these are."""
    layers, everything = range(workload.size.layers), range(workload.size.batches)
    alike: Replica = [workload.weight(layer) for layer in layers], [workload.state(layer) for layer in layers]
    states: dict[tuple[int, ...], list[Array]] = {}
    done = 0
    for parted, until, partition in averages:
        alike = _train(workload, alike, everything, range(done, parted))
        alone = [
            _train(workload, (alike[0], states.get(own, alike[1])), own, range(parted, until)) for own in partition
        ]
        states.update((own, replica[1]) for own, replica in zip(partition, alone))
        sums = [reduce(add, column) for column in zip(*[weights for weights, _ in alone])]
        alike, done = ([workload.average(total, len(alone)) for total in sums], alike[1]), until
    return _train(workload, alike, everything, range(done, workload.setting.steps), versions)[0]


def _train(
    workload: Workload,
    replica: Replica,
    batches: Iterable[int],
    steps: Iterable[int],
    versions: Mapping[int, int] | None = None,
) -> Replica:
    """Some steps on the same batches in each."""
    weights, states = replica
    made: dict[int, list[Array]] = {}
    for step in steps:
        made[step] = weights
        used = made[(versions or {}).get(step, step)]
        grads = [np.zeros_like(weight) for weight in weights]
        for batch in batches:
            inputs = _inputs(workload, used, batch, step)
            grad = workload.layers[-1].loss(inputs.pop(), workload.target(batch, step)[None])
            for layer in reversed(range(len(weights))):
                of = workload.layers[layer]
                grads[layer] += of.backward_weight(inputs[layer], grad, used[layer])
                if layer:
                    grad = of.backward_input(inputs[layer], grad, used[layer])
        updated = [workload.update(*one) for one in zip(grads, weights, states)]
        weights, states = [pair[0] for pair in updated], [pair[1] for pair in updated]
    return weights, states


def _inputs(workload: Workload, weights: Iterable[Array], batch: int, step: int) -> list[Array]:
    """The input of each layer, and the last layer's output, each (1, tokens, h)."""
    inputs = [workload.input(batch, step)[None]]
    for layer, weight in zip(workload.layers, weights):
        inputs.append(layer.forward(inputs[-1], weight))
    return inputs

"""The results of a single device, with which a replay is compared: outputs, or the weights after all steps."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add

import numpy as np

from lib.engine.collectives import Array
from lib.judging.recomputation import RankState
from lib.values.algebra import Average, averages_of
from lib.values.kinds import WeightGrad

from .workload import Workload

Replica = tuple[list[Array], list[Array]]
"""Weights and states, by layer."""


def outputs(workload: Workload) -> list[Array]:
    """The last layer's output for each batch, with the loaded weights."""
    weights = [workload.weight(layer) for layer in range(workload.size.layers)]
    return [_inputs(workload, weights, batch, 0)[-1] for batch in range(workload.size.batches)]


def trained(
    workload: Workload, averages: Sequence[Average] = (), versions: Mapping[int, int] | None = None
) -> list[Array]:
    """The weights of every layer after all steps. `averages` are the averages of replicas that trained separately
    before; `versions` maps steps whose gradients were made with older weights to the step of these weights."""
    layers, everything = range(workload.size.layers), range(workload.size.batches)
    alike: Replica = [workload.weight(layer) for layer in layers], [workload.state(layer) for layer in layers]
    states: dict[tuple[int, ...], list[Array]] = {}
    done = 0
    for parted, until, partition in averages:
        alike = _train(workload, alike, everything, range(done, parted))
        alone = [
            _train(workload, (alike[0], states.get(batches, alike[1])), batches, range(parted, until))
            for batches in partition
        ]
        states.update((batches, replica[1]) for batches, replica in zip(partition, alone))
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
    weights, states = replica
    weights_of: dict[int, list[Array]] = {}
    for step in steps:
        weights_of[step] = weights
        used = weights_of[(versions or {}).get(step, step)]
        grads = [np.zeros_like(weight) for weight in weights]
        for batch in batches:
            for layer, grad in gradients(workload, used, batch, step):
                grads[layer] += grad
        norm = [reduce(add, map(workload.squares, grads))] * workload.setting.clip
        updated = [
            tensors[1:] if layer in workload.setting.frozen else workload.update(*tensors, *norm)
            for layer, tensors in enumerate(zip(grads, weights, states))
        ]
        weights, states = [pair[0] for pair in updated], [pair[1] for pair in updated]
    return weights, states


def gradients(workload: Workload, weights: Sequence[Array], batch: int, step: int) -> Iterator[tuple[int, Array]]:
    """The weight gradient of each layer, the last layer first."""
    inputs = _inputs(workload, weights, batch, step)
    grad = workload.layers[-1].loss(inputs.pop(), workload.target(batch, step)[None])
    for layer in reversed(range(len(weights))):
        of = workload.layers[layer]
        yield layer, of.backward_weight(inputs[layer], grad, weights[layer])
        if layer:
            grad = of.backward_input(inputs[layer], grad, weights[layer])


def _inputs(workload: Workload, weights: Iterable[Array], batch: int, step: int) -> list[Array]:
    """The input of each layer, and the last layer's output, each (1, tokens, h)."""
    inputs = [workload.input(batch, step)[None]]
    for layer, weight in zip(workload.layers, weights):
        inputs.append(layer.forward(inputs[-1], weight))
    return inputs


def averages_in(ranks: Sequence[RankState], steps: int) -> tuple[Average, ...]:
    """The averages of replicas before the final weights; for a refused trace, as far as it could be followed."""
    for rank in ranks:
        for weight in rank.final:
            return averages_of(weight.copy)
    marks = {mark for rank in ranks for value in rank.values.values() if (mark := getattr(value, "copy", None))}
    before = max((mark.averages for mark in marks), key=len, default=())
    alone = sorted(mark for mark in marks if mark.batches and mark.averages == before)
    if not alone:
        return before
    return (*before, (alone[0].since, steps, tuple(sorted(tuple(sorted(mark.batches)) for mark in alone))))


def versions_in(ranks: Sequence[RankState]) -> dict[int, int]:
    """The steps whose gradients were made with older weights, each with the step of these weights."""
    grads = [value for rank in ranks for value in rank.values.values() if isinstance(value, WeightGrad)]
    return {grad.step: grad.version for grad in grads if grad.version is not None}

"""Compares the results and measurements of a replay with a single device's results and the trace's predictions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from lib.engine.collectives import Array
from lib.engine.metering.meter import Reading
from lib.game.ring import elements_sent
from lib.judging.rank_state import RankState
from lib.judging.referee import BYTES_PER_ELEMENT
from lib.rules.collectives import COLLECTIVES
from lib.trace.lifetimes import lifetimes
from lib.trace.ops import Op, group_of
from lib.values.base import Value
from lib.values.kinds import ActivationGrad, Parked, WeightGrad
from lib.values.replicas import Average, Copy, averages_of

from .labels import Content, Tokens
from .tensor_device import TIERS
from .vocabulary import width
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
    """The weights of every layer after all steps. `averages` are the means over replicas that trained alone before;
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


Found = tuple[int | None, Content, Array]
"""A result that a rank has declared: the layer of a final weight, or None of an output; what it holds; the tensor."""


@dataclass(frozen=True)
class RankReplay:
    """One rank: bytes at its peak, messages and bytes sent, as the trace predicts them and as they were measured."""

    predicted_peak: int
    peak: int
    same_memory: bool
    """The measured bytes were the predicted ones at every event, on the device and on each memory tier."""
    predicted_messages: int
    messages: int
    predicted_sent: int
    sent: int
    predicted_parked: int = 0
    """Bytes on memory tiers, at most."""
    parked: int = 0

    @property
    def same(self) -> bool:
        return self.same_memory and self.predicted_messages == self.messages and self.predicted_sent == self.sent


def compared(state: RankState, workload: Workload, played: Mapping[str, Any], meter: Reading) -> RankReplay:
    """One rank's predicted figures beside the measured ones."""
    lives = lifetimes(state.done)
    values = [state.values[n] for n in range(len(state.values))]
    memories = (None, *TIERS)
    predicted = [lives.sampled(lives.held, [bytes_on(one, value, workload) for value in values]) for one in memories]
    samples = list(zip(*predicted))
    live = [tuple(sample) for sample in played["live"]]
    return RankReplay(
        predicted_peak=max(predicted[0]),
        peak=max(sample[0] for sample in live),
        same_memory=samples == live,
        predicted_messages=state.messages,
        messages=meter.messages,
        predicted_sent=sum(bytes_sent(state, op, workload) for op in state.done),
        sent=meter.sent,
        predicted_parked=max(sum(sample[1:]) for sample in samples),
        parked=max(sum(sample[1:]) for sample in live),
    )


def bytes_on(tier: str | None, value: Value, workload: Workload) -> int:
    """Bytes that the tensor of a value takes of a tier, or of the device."""
    if isinstance(value, Parked):
        return value.size(workload.costs) * BYTES_PER_ELEMENT if value.tier == tier else 0
    elements = value.memory(workload.costs) if tier is None else 0
    if isinstance(value, ActivationGrad) and value.vocabulary and value.layer < value.layers - 1:
        hidden = workload.shapes.hidden  # the game leaves out what each token has besides the gradient
        elements = elements // hidden * width(hidden)
    return elements * BYTES_PER_ELEMENT


def bytes_sent(state: RankState, op: Op, workload: Workload) -> int:
    """Bytes that the tensors of an operation make its rank send."""
    if op.name != "pass_to" and op.name not in COLLECTIVES:
        return 0
    sizes = [bytes_on(None, value, workload) for value in state.used(op)]
    members = len(group_of(op) or ()) if op.name in COLLECTIVES else 0
    return sum(elements_sent(op.name, size, members or workload.size.ranks) for size in sizes)


def averages_in(ranks: Sequence[RankState], steps: int) -> tuple[Average, ...]:
    """The averages of replicas before the final weights; of a refused trace, as far as it could be followed."""
    for rank in ranks:
        for weight in rank.final:
            return averages_of(weight.copy)
    marks = {mark for rank in ranks for value in rank.values.values() if (mark := getattr(value, "copy", None))}
    before = max((mark.averages for mark in marks), key=len, default=())
    alone = sorted(mark for mark in marks if mark.batches and mark.averages == before)
    return (*before, *_unfinished(alone, steps))


def _unfinished(alone: Sequence[Copy], steps: int) -> Iterable[Average]:
    if alone:
        yield alone[0].since, steps, tuple(sorted(tuple(sorted(mark.batches)) for mark in alone))


def versions_in(ranks: Sequence[RankState]) -> dict[int, int]:
    """The steps whose gradients were made with older weights, and of which step these are."""
    grads = [value for rank in ranks for value in rank.values.values() if isinstance(value, WeightGrad)]
    return {grad.step: grad.version for grad in grads if grad.version is not None}


def error_of(
    workload: Workload, found: Sequence[Sequence[Found]], averages: Sequence[Average], versions: Mapping[int, int]
) -> float:
    """The worst of all results; infinite if a row of some layer, or a token of some batch, is in none."""
    infers = workload.setting.task == "infer"
    right = outputs(workload) if infers else trained(workload, averages, versions)
    missing = {(i, place) for i, tensor in enumerate(right) for place in range(tensor.shape[-2])}
    worst = 0.0
    for layer, label, tensor in (one for rank in found for one in rank):
        numbers = label.batches if isinstance(label, Tokens) else (layer or 0,)
        in_a_row = isinstance(label, Tokens) and label.in_a_row
        held = [(number, range(right[number].shape[-2]) if in_a_row else label.places) for number in numbers]
        wanted = np.concatenate([right[number].reshape(-1, tensor.shape[-1])[list(places)] for number, places in held])
        worst = max(worst, workload.error(tensor.reshape(wanted.shape), wanted))
        missing -= {(number, place) for number, places in held for place in places}
    return float("inf") if missing else worst

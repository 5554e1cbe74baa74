"""What is right: the results of a single device, and a replay compared with them and with the predictions.

The single device trains in the most direct way, without the game's rules, so that an error in them shows.

How a rank plays its part is left to `rank`, and what a layer computes to `workload`. Rejected: playing the schedule on
one rank as the reference, because a rule that is wrong would be wrong in both. Only what a schedule may choose is read
from its run: which replicas are averaged when, and how old the weights of a gradient are.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from operator import add
from typing import Any

import numpy as np

from lib.engine.collectives import WORD, Array
from lib.engine.metering import Reading
from lib.engine.replay.rank import TENSOR_COLLECTIVES, TIERS
from lib.engine.replay.workload import Result, Workload, is_output, width_with_sums
from lib.ledger.algebra import Average, averages_of
from lib.ledger.collectives import COLLECTIVES, ROOT_OF
from lib.ledger.costs import elements_sent
from lib.ledger.lifetimes import lifetimes
from lib.ledger.recomputation import RankState, uses_of_weights
from lib.ledger.referee import BYTES_PER_ELEMENT
from lib.ledger.trace import Op, group_of, sent_values
from lib.ledger.values import ActivationGrad, Parked, Value, Weight, WeightGrad

# --- The results of a single device, with which a replay is compared: outputs, or the weights after all steps ---

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


def averages_in(ranks: Sequence[RankState]) -> tuple[Average, ...]:
    """The averages of replicas before the final weights."""
    return next((averages_of(weight.copy) for rank in ranks for weight in rank.final), ())


def versions_in(ranks: Sequence[RankState]) -> dict[int, int]:
    """The steps whose gradients were made with older weights, each with the step of these weights."""
    grads = [value for rank in ranks for value in rank.values.values() if isinstance(value, WeightGrad)]
    return {grad.step: grad.version for grad in grads if grad.version is not None}


# --- The results of a single device for outer steps: it trains the replicas of a run one by one, and averages them ---

Own = tuple[int, frozenset[int]]
"""A replica's copy: the layer, and its batches."""


class _Training:
    """The copies of all replicas, and the weights on which they agree."""

    def __init__(self, workload: Workload, ranks: Sequence[RankState]) -> None:
        self.workload = workload
        self.rounds: dict[int, tuple[Average, ...]] = defaultdict(tuple)
        """By layer."""
        self.merged: set[tuple[Own, int, int]] = set()
        """By copy: the steps at which a round's average is merged into it."""
        self.replaced: set[tuple[int, int, int, int]] = set()
        """By layer and microbatch: the steps at which a round's average replaces the copy."""
        layers = self.layers = range(workload.size.layers)
        every = dict.fromkeys((layer, batches) for layer, batches in self._read(ranks) if batches)
        self.agreed = [[workload.weight(layer)] for layer in layers]
        self.outer = [workload.outer_state(layer) for layer in layers]
        self.copies: dict[Own, Array] = {copy: self.agreed[copy[0]][0] for copy in every}
        self.states: dict[Own, Array] = {copy: workload.state(copy[0]) for copy in every}
        for step in range(workload.setting.steps):
            self.average(step)
            self.train(step)
        self.average(workload.setting.steps)

    def _read(self, ranks: Sequence[RankState]) -> Iterator[Own]:
        """What a schedule may choose, from its run. Yields the copies."""
        for value in (value for rank in ranks for value in rank.values.values()):
            if isinstance(value, Weight) and value.copy is not None:
                self.rounds[value.layer] = max(self.rounds[value.layer], value.copy.averages, key=len)
                yield value.layer, value.copy.batches
        for weight in (rank.values[op.outputs[0]] for rank in ranks for op in rank.all({"merge"})):
            if isinstance(weight, Weight) and weight.copy is not None:
                self.merged.add(((weight.layer, weight.copy.batches), weight.step, len(weight.copy.averages)))
        for _, values in uses_of_weights(ranks):
            weight = next(value for value in values if isinstance(value, Weight))
            if weight.copy is not None and not weight.copy.batches:
                batches = values[0].batches  # type: ignore[attr-defined]  # data have batches
                self.replaced |= {(weight.layer, batch, weight.step, len(weight.copy.averages)) for batch in batches}

    def average(self, step: int) -> None:
        """Ends the rounds that end before a step, and lets copies take over their averages."""
        for layer in self.layers:
            rounds = self.rounds[layer]
            for number in range(len(rounds) + 1):
                self.take_over(layer, number, step)
                if number < len(rounds) and rounds[number][1] == step:
                    self.end_round(layer, number, rounds[number])

    def take_over(self, layer: int, number: int, step: int) -> None:
        for copy in (copy for copy in self.copies if copy[0] == layer):
            if (copy, step, number) in self.merged:
                self.copies[copy] = self.workload.mixed(self.copies[copy], self.agreed[layer][number])
            elif any((layer, batch, step, number) in self.replaced for batch in copy[1]):
                self.copies[copy] = self.agreed[layer][number]

    def end_round(self, layer: int, number: int, ended: Average) -> None:
        before, partition = self.agreed[layer][number], ended[2]
        total = reduce(add, [before - self.copies[layer, frozenset(batches)] for batches in partition])
        weight, self.outer[layer] = self.workload.outer_update(before, total, len(partition), self.outer[layer])
        self.agreed[layer].append(weight)

    def train(self, step: int) -> None:
        sums: dict[Own, Array] = {}
        for batch in range(self.workload.size.batches):
            trained = [
                next(copy for copy in self.copies if copy[0] == layer and batch in copy[1]) for layer in self.layers
            ]
            weights = [self.copies[copy] for copy in trained]
            for layer, grad in gradients(self.workload, weights, batch, step):
                sums[trained[layer]] = sums[trained[layer]] + grad if trained[layer] in sums else grad
        for copy, grad in sums.items():
            self.copies[copy], self.states[copy] = self.workload.update(grad, self.copies[copy], self.states[copy])


def trained_with_outer_steps(workload: Workload, ranks: Sequence[RankState]) -> list[Array]:
    """The agreed weight of each layer after its last round, then for each microbatch the copies of its replica."""
    training = _Training(workload, ranks)
    right = [weights[-1] for weights in training.agreed]
    for batch in range(workload.size.batches):
        for layer in training.layers:
            right += [
                weight
                for (trained_layer, batches), weight in training.copies.items()
                if trained_layer == layer and batch in batches
            ]
    return right


def numbered_copies(
    workload: Workload, declared: Sequence[Sequence[Result]], ranks: Sequence[RankState]
) -> list[list[Result]]:
    """The declared results of all ranks. A copy is listed once for each of its microbatches, numbered like the
    results."""
    numbered: list[list[Result]] = []
    for results, rank in zip(declared, ranks):
        copies = iter(rank.copies)
        renumbered: list[Result] = []
        for number, content, tensor in results:
            if number is None or number >= 0:
                renumbered.append((number, content, tensor))
                continue
            mark = next(copies).copy
            batches = mark.batches if mark is not None else ()
            renumbered += [((1 + batch) * workload.size.layers + ~number, content, tensor) for batch in batches]
        numbered.append(renumbered)
    return numbered


# --- Compares the results and measurements of a replay with a single device's results and the trace's predictions ---


@dataclass(frozen=True)
class RankReplay:
    """One rank: bytes at its peak, messages and bytes sent, as predicted from the trace and as measured."""

    predicted_peak: int
    peak: int
    same_memory: bool
    """True if the measured bytes equal the predicted ones at every event, on the device and on each memory tier."""
    predicted_messages: int
    messages: int
    predicted_sent: int
    sent: int
    predicted_parked: int = 0
    """Peak bytes on memory tiers."""
    parked: int = 0

    @property
    def same(self) -> bool:
        return self.same_memory and self.predicted_messages == self.messages and self.predicted_sent == self.sent


def compared(state: RankState, workload: Workload, played: Mapping[str, Any], meter: Reading) -> RankReplay:
    """One rank's predicted and measured figures."""
    lives = lifetimes(state.done)
    values = [state.values[n] for n in range(len(state.values))]
    memories = (None, *TIERS)
    predicted = [lives.sampled(lives.held, [bytes_on(tier, value, workload) for value in values]) for tier in memories]
    samples = list(zip(*predicted))
    live = [tuple(sample) for sample in played["live"]]
    links = [op for op in state.all({*ROOT_OF}) if sent_values(op, state.rank, members_in(op, workload))]
    return RankReplay(
        predicted_peak=max(predicted[0]),
        peak=max(sample[0] for sample in live),
        same_memory=samples == live,
        predicted_messages=len(state.all({"pass_to"})) + len(links),
        messages=meter.messages,
        predicted_sent=sum(bytes_sent(state, op, workload) for op in state.done),
        sent=meter.sent,
        predicted_parked=max(sum(sample[1:]) for sample in samples),
        parked=max(sum(sample[1:]) for sample in live),
    )


def bytes_on(tier: str | None, value: Value, workload: Workload) -> int:
    """Bytes that the tensor of a value takes on a tier, or on the device."""
    if isinstance(value, Parked):
        return value.size(workload.shapes.costs) * BYTES_PER_ELEMENT if value.tier == tier else 0
    elements = value.memory(workload.shapes.costs) if tier is None else 0
    if isinstance(value, ActivationGrad) and value.vocabulary and value.layer < value.layers - 1:
        hidden = workload.shapes.hidden  # the game leaves out what each token has besides the gradient
        elements = elements // hidden * width_with_sums(hidden)
    return elements * BYTES_PER_ELEMENT


def members_in(op: Op, workload: Workload) -> Sequence[int]:
    return (group_of(op) if op.name in COLLECTIVES else None) or range(workload.size.ranks)


def bytes_sent(state: RankState, op: Op, workload: Workload) -> int:
    if op.name != "pass_to" and op.name not in COLLECTIVES:
        return 0
    members = members_in(op, workload)
    sizes = [bytes_on(None, state.values[number], workload) for number in sent_values(op, state.rank, members)]
    sent = sum(elements_sent(op.name, size, len(members)) for size in sizes)
    return max(WORD, sent) if sent and op.name not in TENSOR_COLLECTIVES else sent


def error_of(workload: Workload, results: Sequence[Sequence[Result]], ranks: Sequence[RankState]) -> float:
    """The largest error of all results; infinite if a row of some layer or a token of some batch is missing from
    all."""
    task = workload.setting.task
    if task == "outer":
        right, results = trained_with_outer_steps(workload, ranks), numbered_copies(workload, results, ranks)
    else:
        right = outputs(workload) if task == "infer" else trained(workload, averages_in(ranks), versions_in(ranks))
    trained_ones = [i for i in range(len(right)) if i not in workload.setting.frozen]
    missing = {(i, place) for i in trained_ones for place in range(right[i].shape[-2])}
    worst = 0.0
    for layer, content, tensor in chain(*results):
        numbers = content.batches if is_output(content) else [layer or 0]
        in_a_row = is_output(content) and workload.shapes.lengths
        places_of = [(number, range(right[number].shape[-2]) if in_a_row else content.places) for number in numbers]
        wanted = np.concatenate(
            [right[number].reshape(-1, tensor.shape[-1])[[*places]] for number, places in places_of]
        )
        worst = max(worst, workload.error(tensor.reshape(wanted.shape), wanted))
        missing -= {(number, place) for number, places in places_of for place in places}
    return float("inf") if missing else worst

"""The results of a single device for outer steps: it trains the replicas of a run one by one, and averages them.

The rounds, the copies, and the steps at which copies take over an average are read from the run.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple

from lib.engine.collectives import Array
from lib.judging.recomputation import RankState, uses_of_weights
from lib.values.algebra import Average
from lib.values.kinds import Weight

from .contents import Result
from .reference import gradients
from .workload import Workload

Own = tuple[int, frozenset[int]]
"""A replica's copy: the layer, and its batches."""


class _Course(NamedTuple):
    """By layer, the rounds; by copy, the steps at which a round's average is merged into it or replaces it."""

    rounds: Mapping[int, tuple[Average, ...]]
    copies: Mapping[int, frozenset[frozenset[int]]]
    merged: frozenset[tuple[Own, int, int]]
    replaced: frozenset[tuple[int, int, int, int]]


def _course(ranks: Sequence[RankState]) -> _Course:
    rounds: dict[int, tuple[Average, ...]] = defaultdict(tuple)
    copies: dict[int, set[frozenset[int]]] = defaultdict(set)
    for value in (value for rank in ranks for value in rank.values.values()):
        if isinstance(value, Weight) and value.copy is not None:
            rounds[value.layer] = max(rounds[value.layer], value.copy.averages, key=len)
            copies[value.layer] |= {value.copy.batches} - {frozenset()}
    merges = [rank.values[op.outputs[0]] for rank in ranks for op in rank.all({"merge"})]
    merged = {
        ((weight_copy.layer, weight_copy.copy.batches), weight_copy.step, len(weight_copy.copy.averages))
        for weight_copy in merges
        if isinstance(weight_copy, Weight) and weight_copy.copy is not None
    }
    replaced = set()
    for _, values in uses_of_weights(ranks):
        weight = next(value for value in values if isinstance(value, Weight))
        if weight.copy is not None and not weight.copy.batches:
            batches = values[0].batches  # type: ignore[attr-defined]  # data have batches
            replaced |= {(weight.layer, batch, weight.step, len(weight.copy.averages)) for batch in batches}
    return _Course(
        rounds, {layer: frozenset(batches) for layer, batches in copies.items()}, frozenset(merged), frozenset(replaced)
    )


class _Training:
    """The copies of all replicas, and the weights on which they agree."""

    def __init__(self, workload: Workload, course: _Course) -> None:
        self.workload, self.course = workload, course
        layers = self.layers = range(workload.size.layers)
        self.agreed = [[workload.weight(layer)] for layer in layers]
        self.outer = [workload.outer_state(layer) for layer in layers]
        every = [(layer, copy) for layer in layers for copy in course.copies.get(layer, ())]
        self.copies: dict[Own, Array] = {copy: self.agreed[copy[0]][0] for copy in every}
        self.states: dict[Own, Array] = {copy: workload.state(copy[0]) for copy in every}
        for step in range(workload.setting.steps):
            self.average(step)
            self.train(step)
        self.average(workload.setting.steps)

    def average(self, step: int) -> None:
        """Ends the rounds that end before a step, and lets copies take over their averages."""
        for layer in self.layers:
            rounds = self.course.rounds.get(layer, ())
            for number in range(len(rounds) + 1):
                self.take_over(layer, number, step)
                if number < len(rounds) and rounds[number][1] == step:
                    self.end_round(layer, number, rounds[number])

    def take_over(self, layer: int, number: int, step: int) -> None:
        for copy in (copy for copy in self.copies if copy[0] == layer):
            if (copy, step, number) in self.course.merged:
                self.copies[copy] = self.workload.mixed(self.copies[copy], self.agreed[layer][number])
            elif any((layer, batch, step, number) in self.course.replaced for batch in copy[1]):
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
    training = _Training(workload, _course(ranks))
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

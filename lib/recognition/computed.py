"""What each rank of a run computes: which layers, of which microbatches, in which order, and what is recomputed."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lib import Op, Weight, halves
from lib.game.costs import ATTENDING, COMPUTING
from lib.judging.recomputation import RankState
from lib.values.kinds import Batched

Batches = frozenset[int]

HALVES = {"forward": "F", "backward": "IW", "backward_input": "I", "backward_weight": "W"}
HALVES |= {"keys": "", "attend": "F", "attend_backward": "", "keys_backward": "IW"}
"""What an operation does: forward (F), and the two halves of backward, for the input (I) and for the weight (W)."""


class Part(NamedTuple):
    """A forward, or a half of a backward, of one layer: `half` is F, I or W, `at` the index of the operation. Shares of
    tokens count as microbatches."""

    half: str
    layer: int
    batches: Batches
    step: int
    at: int
    start: int


class RankWork:
    """One rank of a legal run. `parts` has each part once; recomputed forwards are in `again`."""

    def __init__(self, state: RankState) -> None:
        self.state, self.rank, self.ops = state, state.rank, state.ops
        steps = [getattr(state.values[op.outputs[0]], "step", 0) if op.outputs else 0 for op in state.ops]
        self.again = recomputed(state.ops, steps)
        self.shares = 1
        """The shares of tokens that a microbatch has."""
        self.parts = list(self._parts(steps))
        self.layers = frozenset(part.layer for part in self.parts)
        self.batches = frozenset((part.step, batch) for part in self.parts for batch in part.batches)
        self.shards = frozenset(self._shards())

    def _parts(self, steps: Sequence[int]) -> Iterator[Part]:
        for i, op in enumerate(self.ops):
            if op.name in COMPUTING and i not in self.again and op.layer is not None:
                for half in halves(op):
                    step = getattr(self.state.values[half.outputs[0]], "step", steps[i])
                    batches = self._shares(half) if half.name in ATTENDING else half.batches
                    for letter in HALVES[half.name]:
                        yield Part(letter, half.layer or 0, batches, step, i, op.start)

    def _shares(self, op: Op) -> Batches:
        """The shares of tokens of an operation of attention, numbered through all microbatches."""
        inp = self.state.values[op.inputs[0]]
        assert isinstance(inp, Batched)
        self.shares = inp.total
        return frozenset(batch * inp.total + share for batch in op.batches for share in inp.shards)

    def _shards(self) -> Iterator[tuple[int, int]]:
        """The parts of weights that this rank computes with, where it does not have the full weights."""
        for weight in map(self.state.values.__getitem__, self.computed_with()):
            if type(weight) is Weight and not weight.is_complete():
                yield from ((shard, weight.total) for shard in weight.shards)

    def computed_with(self) -> Iterator[int]:
        """The numbers of the weights that this rank computes with."""
        for op in self.ops:
            if op.name in COMPUTING and type(self.state.values[op.inputs[-1]]) is Weight:
                yield op.inputs[-1]

    def named(self, *names: str) -> Iterator[Op]:
        return (op for op in self.ops if op.name in names)


class Grid(NamedTuple):
    """The layout of the ranks that compute: each stage (a set of layers) has a rank for each set of microbatches and
    each shard of the weights."""

    stages: Sequence[frozenset[int]]
    """In the order of their first layers."""
    replicas: Sequence[frozenset[tuple[int, int]]]
    """The (step, microbatch) pairs of each data-parallel replica."""
    tensor: int
    """The ranks that share a stage and its microbatches."""
    ranks: Sequence[RankWork]

    def of(self, stage: int, replica: int) -> list[RankWork]:
        """The ranks of a stage and a replica."""
        layers, batches = self.stages[stage], self.replicas[replica]
        return [work for work in self.ranks if work.layers == layers and work.batches == batches]

    def shares(self) -> tuple[tuple[frozenset[int], int], ...]:
        """The layers of each stage and the number of ranks that share them."""
        return tuple((layers, len(self.ranks) // len(self.stages)) for layers in self.stages)


def grid_of(ranks: Sequence[RankWork]) -> Grid | None:
    """The layout of the ranks; None if a combination of layers, microbatches and shards is missing or occurs twice."""
    places = [(work.layers, work.batches, work.shards) for work in ranks]
    layers, batches = {work.layers for work in ranks}, {work.batches for work in ranks}
    shards = {work.shards for work in ranks}
    if len(set(places)) < len(places) or len(layers) * len(batches) * len(shards) != len(places):
        return None
    stages = sorted(layers, key=lambda some: (min(some), sorted(some)))
    return Grid(stages, sorted(batches, key=sorted), len(shards), ranks)


BACKWARD = frozenset(("backward", "backward_input", "backward_weight"))


def recomputed(ops: Sequence[Op], steps: Sequence[int] = ()) -> set[int]:
    """The indices of forwards that repeat one of the same layer, microbatches and training step. `steps` has the step
    of each operation; without it, a backward separates a forward from the previous step's."""
    again = set()
    done: dict[tuple[int | None, int], frozenset[int]] = {}
    for i, op in ((i, half) for i, whole in enumerate(ops) for half in halves(whole)):
        if op.name != "forward" and op.name not in BACKWARD:
            continue
        key = op.layer, steps[i] if steps else 0
        before = done.get(key, frozenset())
        if op.name == "forward":
            if op.batches and op.batches <= before:
                again.add(i)
            done[key] = before | op.batches
        else:
            done[key] = before - op.batches
    return again

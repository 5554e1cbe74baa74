"""How ranks share states and gradients, the stages of ZeRO (Rajbhandari et al. 2020, section 5), or tokens."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from lib.game.costs import COPYING
from lib.rules.collectives import COLLECTIVES, HEADS
from lib.values.kinds import Batched, KeyValue, OptState, Sharded, Weight, WeightGrad

from . import names
from .computed import RankWork

OTHER = "data parallelism of another kind"


class Holding(NamedTuple):
    """One layer on one rank."""

    gathered: bool
    """It computes with gathered weights."""
    whole: bool
    """It computes first with a weight that was not gathered."""
    state_cut: bool
    """It updates a smaller part of the optimizer state than the part of the weight that it computes with."""
    summed: frozenset[str]
    """The collectives through which an updated gradient went."""
    scatters: int
    """The most reduce-scatters of the layer in a step."""
    at_once: bool
    """There is one gradient per step, and it is summed before the next layer's is computed."""


def name_of(holding: Holding) -> str:
    """The kind of data parallelism in which all layers are held like this one."""
    if not holding.summed:
        return OTHER
    scattered = "scatterreduce" in holding.summed
    if holding.whole and not holding.gathered and not holding.state_cut:
        return names.DATA if holding.summed == {"allreduce"} else OTHER
    if not holding.state_cut:
        return OTHER
    if holding.whole:
        if holding.scatters > 1:
            return names.ZERO_2
        return names.ZERO_1_OR_2 if holding.at_once else names.ZERO_1
    if holding.summed == {"scatterreduce", "allreduce"}:
        return names.HYBRID
    return names.ZERO_3 if scattered else names.WEIGHT_SHARDED


class _Reader:
    """One rank, and the operation that made each of its values."""

    def __init__(self, work: RankWork) -> None:
        self.work, self.values = work, work.state.values
        self.maker = {number: (op, i) for i, op in enumerate(work.ops) for number in op.outputs}

    def holding(self, layer: int) -> Holding:
        came = [self.came_from(number) for number in self.work.computed_with() if self.values[number].layer == layer]
        updates = [op for op in self.work.named("update") if op.layer == layer]
        gradients = [number for op in updates for number in op.inputs if type(self.values[number]) is WeightGrad]
        weights = [self._share(number) for number in self.work.computed_with() if self.values[number].layer == layer]
        states = [self._share(n) for op in updates for n in op.inputs if type(self.values[n]) is OptState]
        scattered = [self.values[number] for op in self.work.named("scatterreduce") for number in op.inputs]
        # What this rank contributes: gradients with something in them.
        contributed = [grad for grad in scattered if type(grad) is WeightGrad and grad.batches and grad.layer == layer]
        steps = [getattr(grad, "step", 0) for grad in contributed]
        return Holding(
            gathered="allgather" in came,
            whole="allgather" not in came[:1],
            state_cut=min(states, default=Fraction(1)) < min(weights, default=Fraction(1)),
            summed=frozenset(name for number in gradients for name in self.sums(number)),
            scatters=max(map(steps.count, steps), default=0),
            at_once=self._at_once(layer),
        )

    def _share(self, number: int) -> Fraction:
        value = self.values[number]
        assert isinstance(value, Sharded)
        return Fraction(len(value.shards), value.total)

    def came_from(self, number: int) -> str:
        """The operation that made a weight, before it was split, joined or moved."""
        op, _ = self.maker[number]
        while op.name in ("shard", "combine", *COPYING):
            op, _ = self.maker[op.inputs[0]]
        return op.name

    def sums(self, number: int) -> Iterator[str]:
        """The collectives through which a gradient went on this rank."""
        waiting, seen = [number], set()
        while waiting:
            number = waiting.pop()
            op, _ = self.maker[number]
            if number not in seen and type(self.values[number]) is WeightGrad:
                seen.add(number)
                if op.name in COLLECTIVES and op.inputs:
                    yield op.name
                    waiting.append(op.inputs[op.outputs.index(number)])
                elif op.name in ("add", "shard", "combine"):
                    waiting += op.inputs

    def _at_once(self, layer: int) -> bool:
        """True if a gradient of the layer is summed, as backward made it, before the next backward."""
        parts = [part for part in self.work.parts if part.half == "W"]
        of_layer = [part for part in parts if part.layer == layer]
        if len({part.step for part in of_layer}) < len(of_layer):
            return False
        ats = [part.at for part in parts]
        sums = {number: i for i, op in enumerate(self.work.ops) if op.name in COLLECTIVES for number in op.inputs}
        for part in of_layer:
            following = bisect_right(ats, part.at)
            grad = next(n for n in self.work.ops[part.at].outputs if type(self.values[n]) is WeightGrad)
            if following < len(ats) and sums.get(grad, ats[following]) >= ats[following]:
                return False
        return True


def gathers(work: RankWork) -> list[int]:
    """How often a rank gathers each of its layers in a step; empty where weights are not gathered."""
    values = (work.state.values[number] for op in work.named("allgather") for number in op.outputs)
    weights = (value for value in values if type(value) is Weight and value.layer in work.layers)
    return list(Counter((weight.layer, weight.step) for weight in weights).values())


def data_parallel(ranks: Sequence[RankWork]) -> tuple[str, str]:
    """The kind of data parallelism of ranks that share their layers, and the first layer that is held differently."""
    readers = ((reader, layer) for reader in map(_Reader, ranks) for layer in sorted(reader.work.layers))
    kinds = [(reader.work.rank, layer, name_of(reader.holding(layer))) for reader, layer in readers]
    names_of_layers = [name for _, _, name in kinds]
    most = max(dict.fromkeys(names_of_layers), key=lambda name: (names_of_layers.count(name), RANKING.index(name)))
    for rank, layer, name in kinds:
        if name != most:
            everywhere = all(other == name for _, other_layer, other in kinds if other_layer == layer)
            where = "" if everywhere else f" on rank {rank}"
            return most, f"layer {layer} is {HELD[name]}{where}"
    return most, ""


HELD: Mapping[str, str] = {
    OTHER: "exchanged in another way",
    names.DATA: "kept unsharded",
    names.ZERO_1: "kept unsharded, and only its state in shards",
    names.ZERO_1_OR_2: "kept unsharded, and only its state in shards",
    names.ZERO_2: "kept unsharded, and only its state and gradient in shards",
    names.WEIGHT_SHARDED: "kept in shards, but its full gradient is summed",
    names.ZERO_3: "kept in shards, and each rank gets its shard of the gradient",
    names.HYBRID: "kept in shards in each of several groups of ranks",
}
"""How one layer is held if it belongs to another kind of data parallelism than the others."""

RANKING = [*HELD]
"""If two kinds have equally many layers, the later one is nearer."""


def context_parallel(ranks: Sequence[RankWork]) -> str:
    """The name of context parallelism among some ranks."""
    exchanges = any(True for work in ranks for _ in work.named(*HEADS))
    brought = {
        op.name
        for work in ranks
        for op in work.named("pass_to", "allgather")
        if any(isinstance(work.state.values[number], KeyValue) for number in op.inputs)
    }
    if exchanges:
        return names.USP if brought else names.ULYSSES
    if "allgather" in brought:
        return names.GATHERED_KEYS
    return names.ZIGZAG if all(map(_is_zigzag, ranks)) else names.RING


def _is_zigzag(work: RankWork) -> bool:
    """True if a rank's tokens are in two pieces, as far from the start of a sequence as from its end."""
    inputs = [work.state.values[op.inputs[0]] for op in work.named("keys")]
    tokens = {(inp.shards, inp.total) for inp in inputs if isinstance(inp, Batched)}
    return all(2 * sum(shards) == len(shards) * (total - 1) and len(shards) < total for shards, total in tokens)

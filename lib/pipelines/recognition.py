"""Names the schedule of a trace: an exact textbook match, or the closest one with the first difference.

A pipeline has the name of its order; ranks with all layers have that of what they share: states and gradients, by the
stages of ZeRO (Rajbhandari et al. 2020, section 5), or tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from lib import COMPUTING, Op, PuzzleError, Setting, Trace
from lib.ledger import family as families
from lib.ledger.collectives import ALL_TO_ALL, COLLECTIVES, HEADS, REDUCING
from lib.ledger.costs import COPYING
from lib.ledger.recomputation import Recomputation
from lib.ledger.trace import no_collection
from lib.ledger.traffic import staleness
from lib.ledger.values import Batched, Delta, KeyValue, OptState, Parked, Sharded, Weight, WeightGrad

from .rank_work import Grid, Match, Names, Pipeline, RankWork, grid_of, match, placement_of, two_ways

if TYPE_CHECKING:
    from .timetable import Timetable


# --- What ranks share ---

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
        return Names.DATA if holding.summed == {"allreduce"} else OTHER
    if not holding.state_cut:
        return OTHER
    if holding.whole:
        if holding.scatters > 1:
            return Names.ZERO_2
        return Names.ZERO_1_OR_2 if holding.at_once else Names.ZERO_1
    if holding.summed == {"scatterreduce", "allreduce"}:
        return Names.HYBRID
    return Names.ZERO_3 if scattered else Names.WEIGHT_SHARDED


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
    Names.DATA: "kept unsharded",
    Names.ZERO_1: "kept unsharded, and only its state in shards",
    Names.ZERO_1_OR_2: "kept unsharded, and only its state in shards",
    Names.ZERO_2: "kept unsharded, and only its state and gradient in shards",
    Names.WEIGHT_SHARDED: "kept in shards, but its full gradient is summed",
    Names.ZERO_3: "kept in shards, and each rank gets its shard of the gradient",
    Names.HYBRID: "kept in shards in each of several groups of ranks",
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
        return Names.USP if brought else Names.ULYSSES
    if "allgather" in brought:
        return Names.GATHERED_KEYS
    return Names.ZIGZAG if all(map(_is_zigzag, ranks)) else Names.RING


def _is_zigzag(work: RankWork) -> bool:
    """True if a rank's tokens are in two pieces, as far from the start of a sequence as from its end."""
    inputs = [work.state.values[op.inputs[0]] for op in work.named("keys")]
    tokens = {(inp.shards, inp.total) for inp in inputs if isinstance(inp, Batched)}
    return all(2 * sum(shards) == len(shards) * (total - 1) and len(shards) < total for shards, total in tokens)


# --- Names ---

OFTEN = {1: "once", 2: "twice"}


def extras_of(ranks: Sequence[RankWork], gathers_in_steps: bool) -> Iterator[str]:
    """Techniques that a schedule adds to its order, in words: 'activations recomputed'."""
    if any(work.again for work in ranks):
        yield "activations recomputed"
    if gathers_in_steps and (often := {times for work in ranks for times in gathers(work)}) and len(often) == 1:
        (times,) = often
        yield f"every weight gathered {OFTEN.get(times, f'{times} times')}"
    if any(_beside(work, "allgather", "fetch") for work in ranks):
        yield "prefetch"
    if any(_beside(work, *REDUCING, kind=WeightGrad) for work in ranks):
        yield "gradients summed during backward"
    if parked := {_parked(work, op) for work in ranks for op in work.named("offload", "fetch")}:
        yield from sorted(parked)
    if any(len(op.inputs) > 1 for work in ranks for op in work.named(*COLLECTIVES)):
        yield "buckets"


def _beside(work: RankWork, *names: str, kind: type = object) -> bool:
    """True if a call with some name is pending during computation."""
    awaited = {op.args[0]: i for i, op in enumerate(work.ops) if op.name == "await"}
    for start, until in awaited.items():
        call = work.ops[start]
        is_meant = call.name in names and isinstance(work.state.values[call.inputs[0]], kind)
        if is_meant and any(op.name in COMPUTING for op in work.ops[start:until]):
            return True
    return False


def _parked(work: RankWork, op: Op) -> str:
    """What moves to or from a tier: 'activations offloaded to the host', 'weights fetched from the host'."""
    value = work.state.values[op.inputs[0] if op.name == "fetch" else op.outputs[0]]
    assert isinstance(value, Parked)
    loaded = any(value.tier in load.args for load in work.named("load_weights"))
    is_there = loaded and op.name == "fetch" and isinstance(value.value, Weight | OptState)
    how = "fetched from" if is_there else "offloaded to"
    return f"{value.value.kind.split(' ', 1)[1]}s {how} the {value.tier}"


@dataclass(frozen=True)
class Recognition:
    """The name of a correct schedule. `names` has one for each axis along which ranks share the work: '1F1B', 'tensor
    parallelism'. With a `difference` it is only similar. `extras` follow the names, and `family` is the family that the
    referee uses. `stages` are for a pipeline: the layers of each, and how many ranks share them."""

    names: tuple[str, ...]
    difference: str
    extras: tuple[str, ...]
    family: str
    stages: tuple[tuple[frozenset[int], int], ...] = ()

    @property
    def name(self) -> str:
        """'1F1B x data parallelism'."""
        return " x ".join(self.names)

    @property
    def text(self) -> str:
        """A noun phrase: '1F1B, with activations recomputed', 'like 1F1B, but rank 2 runs ...'."""
        *some, last = self.extras or ("",)
        extras = f", with {', '.join(some)}{' and ' if some else ''}{last}" if last else ""
        joint = ", " if self.difference.startswith("with ") else ", but "
        but = f"{joint}{self.difference}" if self.difference else ""
        return f"{'like ' if but else ''}{self.name}{extras}{but}"


def recognize(trace: Trace) -> Recognition | None:
    """Names the schedule of a trace; None if it is not correct, or no rank computes anything.

    Only the operations and their order on each rank count, not names or times.
    """
    with no_collection():
        recomputation = Recomputation(trace)
        try:
            recomputation.run()
        except PuzzleError:
            return None
        ranks = [work for work in map(RankWork, recomputation.ranks) if work.parts]
        family = families.family_of(recomputation.ranks)
        return _recognized(ranks, family, trace.setting) if ranks else None


def _recognized(ranks: Sequence[RankWork], family: str, setting: Setting) -> Recognition:
    grid = None if family in ALONE else grid_of(ranks)
    stages = grid.shares() if grid is not None and len(grid.stages) > 1 else ()
    if grid is not None:
        axes = list(_axes(grid, setting))
    elif family in (families.PIPELINE, families.SHARDED_PIPELINE, families.MIXED) and (both := two_ways(ranks)):
        axes = [_ordered([Pipeline([*enumerate(ways.ranks)], ways.placement, ways.up) for ways in both])]
        if len(both) > 1:
            axes.append(Match(*data_parallel(ranks)))
        stages = tuple(Counter(work.layers for work in ranks).items())
    else:
        axes = [Match(_of_family(ranks, family, setting.task))]
    names = tuple(axis.name for axis in axes)
    extras = tuple(extras_of(ranks, not GATHERING.isdisjoint(names)))
    difference = "; ".join(axis.difference for axis in axes if axis.difference)
    return Recognition(names, difference, extras, family, stages)


ALONE = (families.ONE_RANK, families.LOCAL_SGD, families.MIXED, families.REPEATED, families.OWNERS_SEND) + (
    families.CONTEXT_PARALLEL,
)
"""Families in which ranks do not share the work along axes."""

GATHERING = frozenset((Names.ZERO_3, Names.WEIGHT_SHARDED, Names.HYBRID))
"""Kinds that gather weights for each use."""


def _of_family(ranks: Sequence[RankWork], family: str, task: str) -> str:
    match family:
        case families.ONE_RANK:
            return _one_rank(ranks[0], task)
        case families.LOCAL_SGD:
            return _averaged(ranks)
        case families.CONTEXT_PARALLEL:
            return context_parallel(ranks)
    return family


def _averaged(ranks: Sequence[RankWork]) -> str:
    """The name of replicas whose weights, or changes of weights, are averaged: all layers after the same steps, or
    not."""
    changes = [value for work in ranks for value in work.state.values.values() if isinstance(value, Delta)]
    if not changes:
        return Names.LOCAL_SGD
    ends = {(change.step, change.layer) for change in changes}
    at_once = len(ends) == len({step for step, _ in ends}) * len({layer for _, layer in ends})
    return Names.DILOCO if at_once else Names.STREAMING_DILOCO


def _axes(grid: Grid, setting: Setting) -> Iterator[Match]:
    if len(grid.stages) > 1:
        yield _pipeline(grid, setting)
    if grid.tensor > 1:
        yield Match(_tensor(grid))
    if len(grid.replicas) > 1:
        yield Match(*data_parallel(grid.ranks))


def _pipeline(grid: Grid, setting: Setting) -> Match:
    """The order of a pipeline, if it is the same in all replicas."""
    if setting.task == "infer":
        return Match("a pipeline for inference")
    placement, p, first = placement_of(grid), len(grid.stages), grid.ranks[0]
    if placement.kind == "contiguous" and first.shares > 1:
        pieces = {part.batches for part in first.parts if min(part.batches) < first.shares and part.step == 0}
        placement = placement._replace(kind="shares" if len(pieces) > 1 else placement.kind, v=len(pieces))
    if placement.kind == "contiguous" and setting.lag and staleness([work.state for work in grid.ranks]) == 1:
        placement = placement._replace(kind="unflushed")
    replicas = range(len(grid.replicas))
    places = [[(place, work) for place in range(p) for work in grid.of(place, replica)] for replica in replicas]
    return _ordered([Pipeline(ranks, placement) for ranks in places])


def recognize_table(table: Timetable) -> Recognition:
    """Names the schedule of a timetable, as `recognize` does for a trace."""
    axis = _ordered([Pipeline.of_table(table)])
    return Recognition((axis.name,), axis.difference, (), families.PIPELINE)


def _ordered(replicas: Sequence[Pipeline]) -> Match:
    if all(replica.batches == 1 for replica in replicas):
        return Match("a pipeline without microbatches")
    if all(map(_has_one_at_a_time, replicas)):
        return Match("a pipeline with one microbatch at a time")
    return match(replicas) or Match(SHAPES[replicas[0].placement.kind])


SHAPES = {
    "contiguous": "a pipeline",
    "looped": "an interleaved pipeline",
    "V": "a pipeline in a V",
    "waves": "a pipeline in waves",
    "two ways": "a pipeline in two directions",
    "shares": "a pipeline of token shares",
    "unflushed": "a pipeline without flushes",
    "other": "a pipeline of uneven stages",
}
"""The name of a pipeline without a textbook's order, by how its stages are placed."""


def _has_one_at_a_time(pipeline: Pipeline) -> bool:
    """True if each rank ends with a microbatch before it begins the next."""
    return pipeline.regular and all(
        [batch for batch, _ in groupby(cell.batch for cell in row.cells)] == list(range(pipeline.batches))
        for row in pipeline.rows
    )


def _tensor(grid: Grid) -> str:
    """How the ranks of a stage share its microbatches: tokens for experts, or parts of the weights."""
    if any(op.name in ALL_TO_ALL for work in grid.ranks for op in work.ops):
        return Names.EXPERT
    shared = any(
        isinstance(work.state.values[number], Batched)
        for work in grid.ranks
        for op in work.named("scatterreduce")
        for number in op.inputs
    )
    return Names.SEQUENCE if shared else Names.TENSOR


def _one_rank(work: RankWork, task: str) -> str:
    """The order of training on one rank."""
    if task == "infer":
        return "inference on one rank"
    steps = [(part.step, part.half != "F") for part in work.parts]
    if steps == sorted(steps):
        return "standard training: every microbatch forward, then every microbatch backward"
    batches = [batches for batches, _ in groupby((part.step, part.batches) for part in work.parts)]
    return "gradient accumulation, one microbatch at a time" if len(set(batches)) == len(batches) else families.ONE_RANK

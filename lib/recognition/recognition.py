"""Names the schedule of a trace by its order: an exact textbook match, or the closest one with the first difference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from lib import COMPUTING, Op, PuzzleError, Setting, Trace
from lib.judging import family as families
from lib.judging.recomputation import Recomputation
from lib.judging.traffic import staleness
from lib.rules.collectives import ALL_TO_ALL, COLLECTIVES, REDUCING
from lib.trace.ops import no_collection
from lib.values.kinds import Batched, Delta, OptState, Parked, Weight, WeightGrad

from . import names as known
from .computed import Grid, RankWork, grid_of
from .orders import Match, match
from .rows import Pipeline, placement_of, two_ways
from .sharding import context_parallel, data_parallel, gathers

if TYPE_CHECKING:
    from lib.schedules import Timetable


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

GATHERING = frozenset((known.ZERO_3, known.WEIGHT_SHARDED, known.HYBRID))
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
        return known.LOCAL_SGD
    ends = {(change.step, change.layer) for change in changes}
    at_once = len(ends) == len({step for step, _ in ends}) * len({layer for _, layer in ends})
    return known.DILOCO if at_once else known.STREAMING_DILOCO


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
    names = {op.name for work in grid.ranks for op in work.ops}
    if not names.isdisjoint(ALL_TO_ALL):
        return known.EXPERT
    shared = any(
        isinstance(work.state.values[number], Batched)
        for work in grid.ranks
        for op in work.named("scatterreduce")
        for number in op.inputs
    )
    return known.SEQUENCE if shared else known.TENSOR


def _one_rank(work: RankWork, task: str) -> str:
    """The order of training on one rank."""
    if task == "infer":
        return "inference on one rank"
    steps = [(part.step, part.half != "F") for part in work.parts]
    if steps == sorted(steps):
        return "standard training: every microbatch forward, then every microbatch backward"
    batches = [batches for batches, _ in groupby((part.step, part.batches) for part in work.parts)]
    return "gradient accumulation, one microbatch at a time" if len(set(batches)) == len(batches) else families.ONE_RANK

"""Runs of all ranks of a planned step, in which no replica stands for another: their ticks and bytes.

What a value takes is written anew here, from the table of values in `Prices`.
"""

from __future__ import annotations

from dataclasses import replace

from lib.judging.rank_state import RankState
from lib.judging.recompute import Recomputation
from lib.planning.actions import Program
from lib.planning.cost_model import Prices, prices, setting_of
from lib.planning.job import Job
from lib.planning.memory_model import Widths, widths
from lib.planning.plans import program_of
from lib.planning.schedule import planned
from lib.planning.split import Split
from lib.runtime.nested import played
from lib.values.base import Sharded, Value
from lib.values.kinds import Activation, ActivationGrad, OptState, Parked, Weight, WeightGrad


def run_of_all_ranks(job: Job, split: Split) -> tuple[int, list[list[int]]]:
    """The ticks of the step, and by replica the peak bytes of each rank of its pipeline, in fused code."""
    priced, program, setting = prices(job, split), program_of(job, split), replace(setting_of(job, split), fold="")
    size = sum(priced.units), split.batches(job) * priced.replicas, split.pp * priced.replicas
    outcome = played(planned(program), size, setting)
    recomputation = Recomputation(outcome.trace)
    recomputation.run()
    ends = [op.end for rank in recomputation.ranks for op in rank.done]
    peaks = [_peak(rank, priced, program, widths(job, split)) for rank in recomputation.ranks]
    return max(ends), [peaks[start : start + split.pp] for start in range(0, len(peaks), split.pp)]


def _peak(rank: RankState, priced: Prices, program: Program, wide: Widths) -> int:
    """The most bytes at the start of an operation. An all-reduce is in place, as with NCCL: its input counts until the
    call, and its result from then on."""
    place = rank.rank % program.table.ranks
    inputs = frozenset(program.layers_of(place))
    sizes = [_bytes(rank.values[number], inputs, priced, program, wide) for number in range(len(rank.values))]
    reduced = {op.inputs[0]: at for at, op in enumerate(rank.done) if op.name == "allreduce"}
    lives = rank.liveness.lifetimes()
    spans = [(number, after, min(until, reduced.get(number, until))) for number, after, until in lives.held]
    stages = program.table.stages_of(place)
    fixed = priced.workspace + (priced.first if 0 in stages else 0)
    fixed += priced.last if program.table.stages - 1 in stages else 0
    return max(lives.sampled(spans, sizes)) + fixed


def _bytes(value: Value, inputs: frozenset[int], priced: Prices, program: Program, wide: Widths) -> int:
    match value:
        case Activation():
            return priced.kept if value.layer in inputs else priced.border
        case ActivationGrad():
            return priced.border
        case Parked():
            return 0
    assert isinstance(value, Sharded)
    if value.total > 1:
        (i,), n = value.shards, value.total
        elements = (i + 1) * priced.parameters // n - i * priced.parameters // n
        width = {Weight: wide.weight, WeightGrad: wide.gradient, OptState: wide.state}[type(value)]
        return round(elements * width * priced.shard)
    if isinstance(value, Weight):
        return priced.gathered if program.zero == 3 else priced.weight
    if isinstance(value, WeightGrad):
        return priced.reduced if program.zero > 1 else priced.gradient
    return priced.state

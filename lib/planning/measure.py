"""Time, memory in bytes by kind, and bytes sent of a planned run, from re-executing its trace."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import NamedTuple

from lib import Trace
from lib.judging.rank_state import RankState
from lib.judging.recompute import Recomputation
from lib.judging.traffic import sent_by
from lib.trace.gc_pause import no_collection
from lib.values.base import Sharded, Value
from lib.values.kinds import Activation, ActivationGrad, OptState, Parked, Weight, WeightGrad

from .actions import Program
from .cost_model import Prices
from .job import Job
from .playing import executed

KINDS = ("weights", "gradients", "states", "activations", "ends", "workspace")
"""Kinds of memory: `ends` are the embedding, the head and its logits."""

SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the run of the pipeline."""


class Measured(NamedTuple):
    """`ticks` of the step, those that each rank computes, of the fullest rank its memory in bytes by kind, and of the
    rank that sends most the bytes by kind: messages, gradients, weights, host."""

    ticks: int
    busy: tuple[int, ...]
    memory: Mapping[str, int]
    rank: int
    sent: Mapping[str, int]

    @property
    def peak(self) -> int:
        return sum(self.memory.values())

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.ticks)


def measured(trace: Trace, job: Job, prices: Prices, program: Program) -> Measured:
    """What a planned run takes.

    Raises:
        PuzzleError: the run is against the rules, or not complete.
    """
    with no_collection():
        recomputation = executed(trace)
        memories = [_memory(rank, job, prices, program) for rank in recomputation.ranks]
        fullest = max(range(len(memories)), key=lambda rank: sum(memories[rank].values()))
        totals = [_sent(recomputation, rank, job, prices) for rank in recomputation.ranks]
        working = ("forward", "backward", "backward_input", "backward_weight", "loss", "update")
        busy = tuple(sum(op.end - op.start for op in rank.done if op.name in working) for rank in recomputation.ranks)
        end = max(op.end for rank in recomputation.ranks for op in rank.done)
    most = max(totals, key=lambda sent: sum(sent.values()))
    return Measured(end, busy, memories[fullest], fullest, most)


def _sent(recomputation: Recomputation, rank: RankState, job: Job, prices: Prices) -> dict[str, int]:
    """Bytes that a rank sends in the step, by what they are."""
    totals: dict[str, Fraction] = dict.fromkeys(SENT, Fraction())
    widths: dict[str, tuple[str, Fraction | int]] = {
        "pass_to": ("messages", 2),
        "allgather": ("weights", job.weight),
        **dict.fromkeys(("allreduce", "scatterreduce"), ("gradients", job.gradient)),
        **dict.fromkeys(("offload", "fetch"), ("host", job.state * prices.shard)),
    }
    for one in sent_by(recomputation, rank):
        kind, width = widths[one.operation]
        totals[kind] += one.elements * width
    return {kind: round(total) for kind, total in totals.items()}


def _memory(rank: RankState, job: Job, prices: Prices, program: Program) -> dict[str, int]:
    """Bytes by kind when this rank has most. A reduction is in place, as NCCL's are: what is brought to an all-reduce
    counts until the call, and what it makes from then on."""
    mine = frozenset(program.layers_of(rank.rank))
    reduced = {op.inputs[0]: i for i, op in enumerate(rank.done) if op.name == "allreduce"}
    lives = rank.liveness.lifetimes()
    spans = [(number, after, min(until, reduced.get(number, until))) for number, after, until in lives.held]
    kinds = {number: _bytes(value, mine, job, prices) for number, value in rank.values.items()}
    sizes = [kinds[number][1] for number in range(len(kinds))]
    by_kind = {kind: lives.sampled([span for span in spans if kinds[span[0]][0] == kind], sizes) for kind in KINDS[:4]}
    fixed = {"ends": 0, "workspace": prices.workspace}
    stages = program.table.stages_of(rank.rank)
    fixed["ends"] += prices.first if 0 in stages else 0
    fixed["ends"] += prices.last if program.table.stages - 1 in stages else 0
    totals = list(map(sum, zip(*by_kind.values())))
    moment = totals.index(max(totals))
    return {**{kind: samples[moment] for kind, samples in by_kind.items()}, **fixed}


def _bytes(value: Value, mine: Collection[int], job: Job, prices: Prices) -> tuple[str, int]:
    """The kind of a value, and its bytes on the device."""
    if isinstance(value, Activation):
        return "activations", prices.kept if value.layer in mine else prices.border
    if isinstance(value, ActivationGrad):
        return "activations", prices.border
    elements = value.memory(prices.setting.costs)
    if isinstance(value, Parked):
        return "states", 0
    assert isinstance(value, Sharded)
    width = {Weight: job.weight, WeightGrad: job.gradient, OptState: job.state}[type(value)]
    kind = {Weight: "weights", WeightGrad: "gradients", OptState: "states"}[type(value)]
    return kind, round(elements * width * (prices.shard if value.total > 1 else 1))

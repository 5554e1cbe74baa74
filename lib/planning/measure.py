"""Time, memory and bytes sent of a planned run."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from lib import Outcome
from lib.judging.rank_state import RankState
from lib.judging.recompute import Recomputation
from lib.judging.traffic import sent_by
from lib.trace.gc_pause import no_collection

from .actions import Program
from .cost_model import prices
from .job import Job
from .memory import RankMemory, rank_memory
from .memory_model import widths
from .playing import taken_over
from .split import Split

SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the run of the pipeline."""


class Measured(NamedTuple):
    """`ticks` of the step, those that each rank computes, the memory of each, and of the rank that sends most the bytes
    by kind: messages, gradients, weights, host."""

    ticks: int
    busy: tuple[int, ...]
    memory: tuple[RankMemory, ...]
    sent: Mapping[str, int]

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.ticks)


def measured(outcome: Outcome, job: Job, split: Split, program: Program) -> Measured:
    """What a planned run takes."""
    fused, eager = prices(job, split), prices(job, split, eager=True)
    with no_collection():
        recomputation = taken_over(outcome)
        memories = tuple(rank_memory(rank, job, split, program, fused, eager) for rank in recomputation.ranks)
        totals = [_sent(recomputation, rank, job, split) for rank in recomputation.ranks]
        working = ("forward", "backward", "backward_input", "backward_weight", "loss", "update")
        busy = tuple(sum(op.end - op.start for op in rank.done if op.name in working) for rank in recomputation.ranks)
        end = max(op.end for rank in recomputation.ranks for op in rank.done)
    most = max(totals, key=lambda sent: sum(sent.values()))
    return Measured(end, busy, memories, most)


def _sent(recomputation: Recomputation, rank: RankState, job: Job, split: Split) -> dict[str, int]:
    """Bytes that a rank sends in the step, by what they are."""
    wide, shard = widths(job, split), prices(job, split).shard
    totals: dict[str, Fraction] = dict.fromkeys(SENT, Fraction())
    by_operation: dict[str, tuple[str, Fraction | int]] = {
        "pass_to": ("messages", 2),
        "allgather": ("weights", wide.gathered),
        **dict.fromkeys(("allreduce", "scatterreduce"), ("gradients", job.gradient)),
        **dict.fromkeys(("offload", "fetch"), ("host", wide.state * shard)),
    }
    for one in sent_by(recomputation, rank):
        kind, width = by_operation[one.operation]
        totals[kind] += one.elements * width
    return {kind: round(total) for kind, total in totals.items()}

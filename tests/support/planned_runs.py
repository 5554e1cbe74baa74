"""Runs of all ranks of a planned step: what the figures of a plan must equal.

The ledger plays the schedule, and the referee's walk gives values and lifetimes. What a value takes is written anew
here, by the class of the value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import NamedTuple

from lib import Op
from lib.ledger.recomputation import RankState, Recomputation
from lib.ledger.runner import played
from lib.ledger.traffic import sent_by
from lib.ledger.values import Activation, ActivationGrad, OptState, Parked, Sharded, Value, Weight, WeightGrad
from lib.planning.estimate import Program, program_of
from lib.planning.job import Job
from lib.planning.plans import planned
from lib.planning.prices import Prices, Widths, prices, setting_of, widths
from lib.planning.split import Split

COMPUTING = ("forward", "backward", "backward_input", "backward_weight", "loss", "update")
SENDING = {
    "pass_to": "messages", "allgather": "weights", "allreduce": "gradients", "scatterreduce": "gradients",
    "offload": "host", "fetch": "host",
}  # fmt: skip
WAITING = {**dict.fromkeys(("allreduce", "scatterreduce", "allgather"), "dp"), "fetch": "host", "offload": "host"}


class RankRun(NamedTuple):
    """A rank in a run: its peak in bytes without what has no values (the embedding, the head, a workspace), the
    operation that starts then, the number and bytes of what lives then, the ticks that it computes, the bytes that it
    sends, the ticks that it waits, and its events (see `events_of`)."""

    peak: int
    operation: str
    held: dict[str, tuple[int, int]]
    busy: int
    sent: dict[str, int]
    waits: dict[str, int]
    events: list[Event]


Event = tuple[str, int | None, frozenset[int], int, int]
"""An operation, its layer and microbatches, and the ticks at which it starts and ends."""


def events_of(ops: Iterable[Op]) -> list[Event]:
    return [(op.name, op.layer, op.batches, op.start, op.end) for op in ops]


class RunOfAllRanks(NamedTuple):
    """The ticks of a step, and by replica the ranks of its pipeline."""

    ticks: int
    replicas: list[list[RankRun]]


def run_of_all_ranks(job: Job, split: Split) -> RunOfAllRanks:
    priced, program, setting = prices(job, split), program_of(job, split), setting_of(job, split)
    size = sum(priced.units), split.batches(job) * priced.replicas, split.pp * priced.replicas
    recomputation = Recomputation(played(planned(program), size, setting).trace)
    recomputation.run()
    ends = [op.end for rank in recomputation.ranks for op in rank.done]
    ranks = [_rank(recomputation, rank, job, split, program) for rank in recomputation.ranks]
    return RunOfAllRanks(max(ends), [ranks[start : start + split.pp] for start in range(0, len(ranks), split.pp)])


def _rank(recomputation: Recomputation, rank: RankState, job: Job, split: Split, program: Program) -> RankRun:
    """An all-reduce is in place, as with NCCL: its input counts until the call, and its result from then on."""
    priced, wide = prices(job, split), widths(job, split)
    inputs = frozenset(program.layers_of(rank.rank % split.pp))
    named = [_named(rank.values[number], inputs, priced, program, wide) for number in range(len(rank.values))]
    reduced = {op.inputs[0]: at for at, op in enumerate(rank.done) if op.name == "allreduce"}
    lives = rank.liveness.lifetimes()
    spans = [(number, after, min(until, reduced.get(number, until))) for number, after, until in lives.held]
    totals = lives.sampled(spans, [size for _, size in named])
    at = lives.events[totals.index(max(totals))]
    living = [named[number] for number, after, until in spans if after < at <= until and named[number][1]]
    held = {what: (number, 0) for what, number in Counter(what for what, _ in living).items()}
    held = {what: (number, sum(size for name, size in living if name == what)) for what, (number, _) in held.items()}
    sent = dict.fromkeys(("messages", "gradients", "weights", "host"), Fraction())
    width = {"messages": 2, "weights": wide.gathered, "gradients": job.gradient, "host": wide.state * priced.shard}
    for one in sent_by(recomputation, rank):
        kind = SENDING[one.operation]
        sent[kind] += one.elements * width[kind]
    waits = {"dp": 0, "host": 0}
    for op in rank.done:
        if op.name == "await" and (axis := WAITING.get(rank.done[op.args[0]].name)):
            waits[axis] += op.end - op.start
    busy = sum(op.end - op.start for op in rank.done if op.name in COMPUTING)
    rounded = {kind: round(n) for kind, n in sent.items()}
    return RankRun(max(totals), rank.done[at].name, held, busy, rounded, waits, events_of(rank.done))


def _named(
    value: Value, inputs: frozenset[int], priced: Prices, program: Program, wide: Widths
) -> tuple[str, int]:  # fmt: skip
    """What a value is, in the words of a plan, and its bytes on the device."""
    match value:
        case Activation() if value.layer in inputs:
            return "activations kept for backward", priced.kept
        case Activation():
            return "outputs of a stage", priced.border
        case ActivationGrad():
            return "gradients of activations", priced.border
        case Parked():
            return "", 0
    assert isinstance(value, Sharded)
    width, what = {
        Weight: (wide.weight, "weights"),
        WeightGrad: (wide.gradient, "gradients of weights"),
        OptState: (wide.state, "states of the optimizer"),
    }[type(value)]
    if len(value.shards) < value.total:
        (i,), n = value.shards, value.total
        elements = (i + 1) * priced.parameters // n - i * priced.parameters // n
        return f"shards of {what}", round(elements * width * priced.shard)
    if program.zero == 3 and isinstance(value, Weight):
        return "gathered weights", priced.gathered
    if program.zero > 1 and isinstance(value, WeightGrad):
        return "gradients that are being reduced", priced.reduced
    return what, priced.parameters * width

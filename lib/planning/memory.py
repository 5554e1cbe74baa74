"""What a planned run takes: time, bytes sent, and what each rank holds at its peak, in fused or eager code."""

from collections import defaultdict
from collections.abc import Collection, Mapping
from fractions import Fraction
from typing import NamedTuple

from lib import Outcome
from lib.judging.rank_state import RankState
from lib.judging.recompute import Recomputation
from lib.judging.traffic import sent_by
from lib.trace.gc_pause import no_collection
from lib.values.base import Sharded, Value
from lib.values.kinds import Activation, ActivationGrad, OptState, Parked, Weight, WeightGrad

from .actions import Program
from .cost_model import Prices, prices, setting_of
from .job import Job
from .memory_model import Widths, widths, with_holes
from .split import Split

KINDS = ("weights", "gradients", "states", "activations", "ends", "workspace")
"""Kinds of memory: `ends` are the embedding, the head and its logits."""


class PeakShare(NamedTuple):
    """Similar values that live at a peak: what they are, their number, and their bytes in all."""

    what: str
    number: int
    bytes: int


class RankMemory(NamedTuple):
    """A rank of the pipeline at its peak. `low` has the bytes of fused code by kind; `high` is the most that eager code
    reserves. `operation` starts at the peak; `held` lists what lives then, in fused code. `layers` is the number of
    layers of its stages."""

    rank: int
    layers: int
    low: Mapping[str, int]
    high: int
    operation: str
    held: tuple[PeakShare, ...]

    @property
    def peak(self) -> int:
        return sum(self.low.values())


def rank_memory(rank: RankState, job: Job, split: Split, program: Program, fused: Prices, eager: Prices) -> RankMemory:
    """What a rank holds. A reduction is in place, as with NCCL: the input of an all-reduce counts until the call, and
    its result from then on."""
    mine = frozenset(program.layers_of(rank.rank))
    reduced = {op.inputs[0]: i for i, op in enumerate(rank.done) if op.name == "allreduce"}
    lives = rank.liveness.lifetimes()
    spans = [(number, after, min(until, reduced.get(number, until))) for number, after, until in lives.held]
    wide, costs = widths(job, split), setting_of(job, split).costs

    def fullest(priced: Prices) -> tuple[int, dict[str, int], dict[int, tuple[str, str, int]]]:
        kinds = {n: _bytes(value, value.memory(costs), mine, wide, program, priced) for n, value in rank.values.items()}
        sizes = [kinds[number][2] for number in range(len(kinds))]
        alike = {kind: [span for span in spans if kinds[span[0]][0] == kind] for kind in KINDS[:4]}
        samples = {kind: lives.sampled(some, sizes) for kind, some in alike.items()}
        totals = list(map(sum, zip(*samples.values())))
        moment = totals.index(max(totals))
        stages = program.table.stages_of(rank.rank)
        ends = (priced.first if 0 in stages else 0) + (priced.last if program.table.stages - 1 in stages else 0)
        by_kind = {kind: one[moment] for kind, one in samples.items()}
        return moment, {**by_kind, "ends": ends, "workspace": priced.workspace}, kinds

    moment, low, kinds = fullest(fused)
    high = with_holes(job, split, sum(fullest(eager)[1].values()))
    at = lives.events[moment] if moment < len(lives.events) else lives.end
    groups: dict[str, list[int]] = defaultdict(list)
    for number, after, until in spans:
        if after < at <= until and kinds[number][2]:
            groups[kinds[number][1]].append(kinds[number][2])
    held = [PeakShare(what, len(sizes), sum(sizes)) for what, sizes in groups.items()]
    held += [PeakShare(what, 1, low[kind]) for kind, what in FIXED.items() if low[kind]]
    operation = rank.done[at].name if at < lives.end else "the end"
    layers = len(mine) * fused.layers
    held.sort(key=lambda one: (-one.bytes, one.what))
    return RankMemory(rank.rank, layers, low, max(high, sum(low.values())), operation, tuple(held))


FIXED = {"ends": "embedding, head and logits", "workspace": "activations of a layer that is computed again"}


def _bytes(
    value: Value, elements: int, mine: Collection[int], wide: Widths, program: Program, priced: Prices
) -> tuple[str, str, int]:
    """The kind of a value with `elements` elements, what it is in words, and its bytes on the device."""
    if isinstance(value, Activation):
        kept = value.layer in mine
        what = "activations kept for backward" if kept else "outputs of a stage"
        return "activations", what, priced.kept if kept else priced.border
    if isinstance(value, ActivationGrad):
        return "activations", "gradients of activations", priced.border
    if isinstance(value, Parked):
        return "states", "states on the host", 0
    assert isinstance(value, Sharded)
    width, what, kind = {
        Weight: (wide.weight, "weights", "weights"),
        WeightGrad: (wide.gradient, "gradients of weights", "gradients"),
        OptState: (wide.state, "states of the optimizer", "states"),
    }[type(value)]
    if value.total > 1:
        return kind, f"shards of {what}", round(elements * width * priced.shard)
    if program.zero == 3 and isinstance(value, Weight):
        return kind, "gathered weights", priced.gathered
    if program.zero > 1 and isinstance(value, WeightGrad):
        return kind, "gradients that are being reduced", priced.reduced
    return kind, what, elements * width


# --- Time and bytes sent ---

SENT = ("messages", "gradients", "weights", "host")
"""Kinds of bytes that a rank sends in the run of the pipeline."""


class Measured(NamedTuple):
    """The `ticks` of the step, the ticks that each rank computes, the memory of each rank, and by kind (see SENT) the
    bytes of the rank that sends the most."""

    ticks: int
    busy: tuple[int, ...]
    memory: tuple[RankMemory, ...]
    sent: Mapping[str, int]

    @property
    def bubble(self) -> float:
        """The share of all ranks' time in which they do not compute."""
        return 1 - sum(self.busy) / (len(self.busy) * self.ticks)


def measured(outcome: Outcome, job: Job, split: Split, program: Program) -> Measured:
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
    """Bytes that a rank sends in the step, by kind."""
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


def taken_over(outcome: Outcome) -> Recomputation:
    """Hands the values of a run to the referee's measurement. The schedule is ours and the run has checked it, so it is
    not executed again; the tests do that."""
    recomputation = Recomputation(outcome.trace)
    for state, model in zip(recomputation.ranks, outcome.models):
        state.values.update(enumerate(model.made))
        state.at = len(state.ops)
        state.liveness.advance(state.at)
    return recomputation

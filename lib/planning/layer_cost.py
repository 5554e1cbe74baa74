"""What one layer costs on the ranks that share it (tp, cp, ep): what they compute, keep and send.

These ranks do the same for every layer and microbatch. Ticks and bytes are those of a run of the ledger, which the
tests play. They become the prices of `forward` and `backward` in the run of the full pipeline.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil
from types import MappingProxyType
from typing import NamedTuple

from lib.game.ring import elements_sent

from .gpus import LATENCY, call_seconds
from .job import Job
from .split import Split

FLASH_BACKWARD = 1.25
"""The factor by which a flop of the backward of flash attention's core takes longer than one of its forward."""

OPS_TIME, OPS_BYTES = 0.5, 0.5
"""Recomputation of single operations: the share of a forward that runs again, and the share of activations kept."""


def tokens_of(job: Job, split: Split) -> int:
    """Tokens of a microbatch on a rank."""
    return split.microbatch * job.sequence // split.cp


def activation_bytes(job: Job, split: Split, eager: bool = False) -> float:
    """Bytes of a layer that a rank keeps for the backward of a microbatch, on average over the layers."""
    of_input = tokens_of(job, split) * 2 * job.model.hidden / (split.tp if split.sp else 1)
    if split.offload == "activations":
        return of_input
    kept = _all_bytes(job, split, split.recompute != "selective", eager)
    if split.recompute == "full":
        return of_input / split.every + kept * (1 - 1 / split.every)
    return kept * (OPS_BYTES if split.recompute == "ops" else 1)


def copied_bytes(job: Job, split: Split) -> float:
    """Bytes of a layer and a microbatch that a rank copies to the host, and back for backward."""
    if split.offload != "activations":
        return 0.0
    on_device = replace(split, offload="none")
    return max(0.0, activation_bytes(job, on_device) - activation_bytes(job, split))


def workspace_bytes(job: Job, split: Split, eager: bool = False) -> float:
    """Bytes of a recomputed layer's activations while it is recomputed. If activations are offloaded, two layers have
    theirs on the device: the one that computes, and the one that is being copied."""
    if split.offload == "activations":
        return 2 * _all_bytes(job, split, split.recompute != "selective", eager)
    if split.recompute in ("full", "ops"):
        return _all_bytes(job, split, True, eager)
    if split.recompute == "none" or job.flash:
        return 0.0
    return tokens_of(job, split) * job.model.matrix_bytes(job.sequence) / split.tp


def _all_bytes(job: Job, split: Split, matrices: bool, eager: bool = False) -> float:
    model, tp, wide = job.model, split.tp, eager and job.kernels == "pytorch"
    small, large = model.inputs_in_8_bits() if job.fp8 and not eager else (0.0, 0.0)
    each = (model.whole_bytes(wide) - small) / (tp if split.sp else 1) + (model.split_bytes(wide) - large) / tp
    if matrices and not job.flash:
        each += model.matrix_bytes(job.sequence) / tp
    return tokens_of(job, split) * each


def compute_seconds(job: Job, split: Split) -> tuple[float, float, float]:
    """Seconds of a layer's forward and of both halves of its backward on one rank, without communication.

    Matrix products run at the reached rate. What is kept for backward is written to memory once and read once, and
    again in backward. A flash core computes the causal half, and in backward repeats its forward (Dao et al. 2022,
    algorithm 4), at its own rate; 8 bits do not speed it up. Recomputation of single operations ("ops") takes half a
    forward.
    """
    linear, core, moved = forward_seconds(job, split)
    core_back = core_backward(job, split) * core
    again = OPS_TIME * (linear + core + moved) if split.recompute == "ops" else 0.0
    return linear + core + moved, linear + core_back + moved + again, linear + moved


def forward_seconds(job: Job, split: Split) -> tuple[float, float, float]:
    """Seconds of a layer's forward on one rank: matrix products, attention's core, and moving activations."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    rate = (gpu.flops8 if job.fp8 else gpu.flops) * gpu.efficiency
    linear = 2 * tokens * model.active_weights / model.layers / split.tp / rate
    core = tokens * model.core_flops(job.sequence) / (2 if job.flash else 1) / split.tp / job.core_rate
    return linear, core, 2 * _all_bytes(replace(job, fp8=False), split, True) / gpu.bandwidth


def core_backward(job: Job, split: Split) -> float:
    """The time of the backward of attention's core, divided by the time of its forward."""
    return FLASH_BACKWARD * 3 if job.flash else 3 if split.recompute == "selective" else 2


TICKS = 10**7
"""Ticks in a second in the run of a layer: a tick is 100 ns."""

PARTS = 2
"""The parts of a layer: attention, and the feed-forward part, whose experts are split along tp too."""


class Moves(NamedTuple):
    """For each kind of communication, the ticks of a call and of each element that a rank sends, as in a cost
    record."""

    calls: Mapping[str, int]
    beta: Mapping[str, Fraction]

    def ticks(self, operation: str, elements: int, ranks: int) -> int:
        """As `Costs.transfer`."""
        return self.by_size(operation, elements_sent(operation, elements, ranks))

    def by_size(self, operation: str, sent: int) -> int:
        return self.calls[operation] + ceil(self.beta[operation] * sent)


@cache
def exact(number: float) -> Fraction:
    """A fraction near a number, in the form that costs take."""
    return Fraction(number).limit_denominator(10**12)


class LayerTimes(NamedTuple):
    """Seconds of a layer for one microbatch. By axis (tp, cp, ep): the bytes that a rank sends in it, and the seconds
    that are `added` to its computation."""

    forward: float
    backward_input: float
    backward_weight: float
    sent: Mapping[str, float]
    sent_forward: Mapping[str, float]
    """What is sent again when forward runs again."""
    added: Mapping[str, float]


@cache
def layer_times(job: Job, split: Split) -> LayerTimes:
    """Only tp, cp, ep, sp, microbatch and recompute of a split matter: see `shared`."""
    computed = compute_seconds(job, split)
    forward, back_input, back_weight = (
        PARTS * ceil(exact_ticks / split.tp) / TICKS
        for exact_ticks in (_ticks(seconds * split.tp / PARTS) for seconds in computed)
    )
    sent, sent_forward, added = (dict.fromkeys(("tp", "cp", "ep"), 0.0) for _ in range(3))
    added["tp"] = forward + back_input + back_weight - sum(computed)
    for axis, moves, width, (there, back) in _exchanges(job, split):
        ranks = getattr(split, axis)
        ways = there, back
        seconds = [sum(n * moves.ticks(name, size, ranks) for name, size, n in calls) / TICKS for calls in ways]
        counts = [sum(n * elements_sent(name, size, ranks) for name, size, n in calls) for calls in ways]
        forward, back_input = forward + seconds[0], back_input + seconds[1]
        sent[axis], sent_forward[axis] = width * sum(counts), width * counts[0]
        added[axis] += sum(seconds)
    return LayerTimes(forward, back_input, back_weight, *map(MappingProxyType, (sent, sent_forward, added)))


def shared(split: Split) -> Split:
    """The split reduced to the fields that decide a layer's cost, as a cache key."""
    kept = {name: getattr(split, name) for name in ("tp", "cp", "ep", "sp", "microbatch")}
    return Split(**kept, recompute=split.recompute if split.recompute in ("selective", "ops") else "none")


Calls = Sequence[tuple[str, int, int]]
"""For each kind of call: its operation, the elements that a rank contributes, and the number of calls."""


def _exchanges(job: Job, split: Split) -> Iterator[tuple[str, Moves, int, tuple[Calls, Calls]]]:
    """For each axis with several ranks: prices, bytes of an element, and the calls of forward and of the input half."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    tp, cp, ep = split.tp, split.cp, split.ep
    if tp > 1:
        whole = tokens * model.hidden
        reduce = ("scatterreduce" if split.sp else "allreduce", whole, PARTS)
        # Each rank keeps a share of the tokens, and gathers them: the input twice, and the gradient (Korthikanti et
        # al. 2022, section 4.2.2).
        there, back = ([("allgather", whole // tp, n * PARTS)] if split.sp else [] for n in (1, 2))
        moves = _moves(job, split, "tp", 2 / gpu.rate(gpu.members(1, tp), tp))
        yield "tp", moves, 2, ([*there, reduce], [*back, reduce])
    if cp > 1:
        # Keys and values go round a ring, and in backward again with their gradients (Liu et al. 2023, Ring Attention).
        pairs = tokens * (model.kv_bytes // tp)
        moves = _moves(job, split, "cp", 1 / gpu.rate(gpu.members(tp, cp), cp))
        yield "cp", moves, 1, ([("pass_to", pairs, cp - 1)], [("pass_to", pairs, 2 * (cp - 1))])
    if ep > 1:
        # Tokens go to their experts and back, forward and backward (Lepikhin et al. 2021, GShard, 3.2), a share from
        # each tensor parallel rank. Layers without experts send nothing, so the average layer sends less.
        routed = tokens * (model.hidden * model.top_k * model.expert_layers // (model.layers * tp))
        moves = _moves(job, split, "ep", 2 / gpu.rate_to_all(gpu.members(tp * cp, ep), ep))
        both = [("dispatch", routed, 1), ("collect", ep * (routed // ep), 1)]
        yield "ep", moves, 2, (both, both)


def _moves(job: Job, split: Split, axis: str, per_element: float) -> Moves:
    """Prices of an axis; each element sent takes `per_element` seconds."""
    link, sending = link_of(job, split, axis), ("allreduce", "allgather", "scatterreduce", "dispatch", "collect")
    calls = {
        **dict.fromkeys(sending, _ticks(call_seconds(link, getattr(split, axis)))),
        "pass_to": _ticks(LATENCY[link]),
    }
    return Moves(calls, dict.fromkeys(calls, exact(per_element * TICKS)))


def link_of(job: Job, split: Split, axis: str) -> str:
    """The slowest link of an axis within a layer."""
    stride, count = {"tp": 1, "cp": split.tp, "ep": split.tp * split.cp}[axis], getattr(split, axis)
    return job.gpu.link(job.gpu.members(stride, count), count)


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)

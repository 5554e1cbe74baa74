"""What one layer costs on the ranks that share it (tp, cp, ep): what they compute, keep and send.

These ranks do the same for every layer and microbatch. Ticks and bytes are those of a run of the ledger, which the
tests play; what experts read and write, what overlaps, and a host that launches late are added to it. They become the
prices of `forward` and `backward` in the run of the full pipeline.

The terms of experts and their constants are from 43 published runs (docs/truth.md). Tried and left out, since it made
these worse: the bytes of making 8-bit rows, fewer rows for an expert that are slower, and a contention of 0.2; and for
ZeRO 3 beside a pipeline, gathers in each forward and backward, which explain one published run and contradict two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from math import ceil, comb
from types import MappingProxyType
from typing import NamedTuple

from lib.game.costs import elements_sent

from .gpus import CONTENTION, LATENCY, REACHED, call_seconds
from .job import Job
from .split import Split

FLASH_BACKWARD = 1.25
"""The factor by which a flop of the backward of flash attention's core takes longer than one of its forward."""

CORE_BACKWARD_ALONE = 3.2
"""The backward of cuDNN's flash attention on an H100, divided by its forward: 5 products instead of 2, and small
kernels before and after (measured on one GPU, docs/truth.md)."""

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
    if split.recompute == "ops" and job.kernels == "pytorch":  # grouped products of experts run again
        kept -= _all_bytes(job, split, False, eager) - _all_bytes(replace(job, modules=("moe",)), split, False, eager)
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
    modules = _all_bytes(replace(job, modules=()), split, False) - _all_bytes(job, split, False) if job.modules else 0.0
    if split.recompute == "none" or job.flash:
        return modules
    return modules + tokens_of(job, split) * job.model.matrix_bytes(job.sequence) / split.tp


def _all_bytes(job: Job, split: Split, matrices: bool, eager: bool = False) -> float:
    model, tp, wide = job.model, split.tp, eager and job.kernels == "pytorch"
    in_8_bits = job.fp8 and not eager
    small, large = model.inputs_in_8_bits() if in_8_bits else (0.0, 0.0)
    again, again_cut = model.recomputed_bytes(job.modules, wide, in_8_bits)
    of_token = (model.whole_bytes(wide) - small - again) / (tp if split.sp else 1)
    of_token += (model.split_bytes(wide) - large - again_cut) / tp
    if matrices and not job.flash:
        of_token += model.matrix_bytes(job.sequence) / tp
    return tokens_of(job, split) * of_token


def compute_seconds(job: Job, split: Split, eager: bool = False) -> tuple[float, float, float]:
    """Seconds of a layer's forward and of both halves of its backward on one rank, without communication.

    Matrix products run at the reached rate. What is kept for backward is written to memory once and read once, and
    again in backward. A flash core computes the causal half, and in backward repeats its forward (Dao et al. 2022,
    algorithm 4), at its own rate; 8 bits do not speed it up. Recomputation of single operations ("ops") takes half a
    forward. In eager code each element-wise operation reads and writes memory.
    """
    linear, core, moved = forward_seconds(job, split, eager)
    core_back = core_backward(job, split) * core
    again = OPS_TIME * (linear + core + moved) if split.recompute == "ops" else 0.0
    moved_back = _eager_seconds(job, split)[1] if eager else 2 * moved
    return linear + core + moved, linear + core_back + moved_back / 2 + again, linear + moved_back / 2


def forward_seconds(job: Job, split: Split, eager: bool = False) -> tuple[float, float, float]:
    """Seconds of a layer's forward on one rank: matrix products, attention's core, and moving activations."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    rate = (gpu.flops8 if job.fp8 else gpu.flops) * job.efficiency
    linear = 2 * tokens * model.active_weights / model.layers / split.tp / rate
    core = tokens * model.core_flops(job.sequence) / (2 if job.flash else 1) / split.tp / job.core_rate
    if eager:
        return linear, core, _eager_seconds(job, split)[0]
    return linear, core, 2 * _all_bytes(replace(job, fp8=False, modules=()), split, True) / gpu.bandwidth


def _eager_seconds(job: Job, split: Split) -> tuple[float, float]:
    """Seconds of the element-wise kernels of a layer's forward and backward if none are fused."""
    of_token = (whole / (split.tp if split.sp else 1) + cut / split.tp for whole, cut in job.model.elementwise_bytes())
    forward, backward = (tokens_of(job, split) * size / job.gpu.bytes_per_second for size in of_token)
    return forward, backward


def core_backward(job: Job, split: Split) -> float:
    """The time of the backward of attention's core, divided by the time of its forward."""
    if job.flash and job.by_kernel:
        return CORE_BACKWARD_ALONE
    return FLASH_BACKWARD * 3 if job.flash else 3 if split.recompute == "selective" else 2


# --- Experts ---

EXPERTS_8_BITS = 0.6
"""Grouped products of experts reach so much less of the rate of 8 bits than other products do (fitted)."""

ROW_PASSES, SORT_PASSES = 8, 4
"""How often a row of an expert is read or written in forward: as it is dispatched, permuted (twice), read by the first
product, written by the second, unpermuted (twice) and combined; and to sort rows by expert after an all-to-all, there
and back."""

BIAS_PASSES = 40
"""Passes over the two halves of a gated activation with a bias, which Megatron's kernels do not fuse (fitted)."""

DISPATCH_CALL = 0.3e-3
"""Seconds of a dispatch or a combine in addition to its bytes (fitted; its metadata is exchanged first)."""

LAUNCHES = {"none": 1.5e-3, "partial": 1.0e-3, "full": 0.0}
"""Seconds in which the host launches the forward of a layer, by its CUDA graphs (fitted)."""

LAUNCH_EXPERT = 0.12e-3
"""Seconds in which the host launches the products of an expert with Megatron's kernels (fitted)."""


class Experts(NamedTuple):
    """Seconds of the experts of an average layer in forward: `products` in all, of which `slower` is more than
    `forward_seconds` counts; `moved`, reading and writing rows and weights. `summed`: adding up their gradients, in the
    weight half of backward. `host`: the least time of a forward, in which its kernels are launched."""

    products: float = 0.0
    slower: float = 0.0
    moved: float = 0.0
    summed: float = 0.0
    host: float = 0.0


@cache
def experts_of(job: Job, split: Split) -> Experts:
    """The experts of a layer on one rank, which for ep > 1 are not cut along tp (Megatron's expert tensor parallel size
    of 1)."""
    model, gpu = job.model, job.gpu
    if not model.experts:
        return Experts()
    share, local = model.expert_layers / model.layers, model.experts / split.ep
    even = tokens_of(job, split) / split.tp * model.top_k
    rows = even * (1 if job.balanced else job.imbalance)
    work = 2 * model.matrices * model.hidden * model.expert_ffn
    rate, slowed = (gpu.flops8, EXPERTS_8_BITS) if job.fp8 else (gpu.flops, 1)
    products, plain = rows * work / (slowed * rate * gpu.efficiency), even * work / (rate * gpu.efficiency)
    weights = local * work / 2 / (split.tp if split.ep == 1 else 1)
    passes = ROW_PASSES + (SORT_PASSES if job.dispatch == "alltoall" and split.ep > 1 else 0)
    moved = 2 * rows * model.hidden * passes + 2 * weights
    launched = LAUNCHES[job.graphs]
    if job.kernels == "megatron" and job.graphs != "full":
        moved += 2 * BIAS_PASSES * rows * 2 * model.expert_ffn if model.biased else 0
        launched += local * LAUNCH_EXPERT
    of_layer = (products, products - plain, moved / gpu.bandwidth, 2 * job.gradient * weights / gpu.bandwidth, launched)
    return Experts(*(share * seconds for seconds in of_layer))


def ep_traffic(job: Job, split: Split) -> tuple[float, float, float]:
    """A dispatch of the fullest rank in a layer with experts, or a combine: its seconds, and the rows that it sends for
    each of its tokens, to other machines over the network and at the same time within its machine over NVLink."""
    model, gpu, ep, k = job.model, job.gpu, split.ep, job.model.top_k
    near = gpu.members(1, ep)
    machines = ceil(ep / near)
    if job.dispatch == "alltoall":
        out, within = k * (ep - near) / ep, k * (near - 1) / ep
    elif job.consecutive:
        out, within = (machines - 1) / machines, ceil(k * ep / model.experts) * (ep - 1) / ep
    else:
        reached = float(machines)  # the machines that a token's experts may be in
        if model.groups:
            here = max(1, model.groups // machines)
            missed = comb(model.groups - here, model.top_groups) / comb(model.groups, model.top_groups)
            reached *= 1 - missed if machines <= model.groups else model.top_groups / model.groups
        out = _distinct(reached, k) * (machines - 1) / machines
        within = _distinct(ep, k) * (ep - 1) / ep
    uneven = 1 if job.balanced else job.imbalance
    sent = uneven * 2 * model.hidden * tokens_of(job, split) / split.tp
    sending = sent * max(out / (gpu.network * REACHED), within / (gpu.nvlink * REACHED))
    return DISPATCH_CALL + sending, uneven * out, uneven * within


def _distinct(places: float, tries: int) -> float:
    """How many of `places` are hit by as many random tries."""
    return places * (1 - (1 - 1 / places) ** tries)


# --- The layer with its communication ---

TICKS = 10**7
"""Ticks in a second in the run of a layer: a tick is 100 ns."""

PARTS = 2
"""The parts of a layer that tp ranks share: attention, and the feed-forward part."""


class Moves(NamedTuple):
    """For each kind of communication, the ticks of a call and of each element that a rank sends, as in a cost
    record."""

    calls: Mapping[str, int]
    beta: Mapping[str, Fraction]

    def ticks(self, operation: str, elements: int, ranks: int) -> int:
        """As `Costs.transfer`."""
        return self.by_size(operation, elements_sent(operation, elements, ranks))

    def by_size(self, operation: str, sent: int) -> int:
        beta = self.beta[operation]
        return self.calls[operation] - (-beta.numerator * sent // beta.denominator)  # rounded up


@cache
def exact(number: float) -> Fraction:
    """A fraction near a number, in the form that costs take."""
    return Fraction(number).limit_denominator(10**12)


class LayerTimes(NamedTuple):
    """Seconds of a layer for one microbatch. By axis (tp, cp, ep): the bytes that a rank sends in it, and the seconds
    that are `added` to its computation, without what overlaps with it."""

    forward: float
    backward_input: float
    backward_weight: float
    sent: Mapping[str, float]
    sent_forward: Mapping[str, float]
    """What is sent again when forward runs again."""
    added: Mapping[str, float]


@cache
def layer_times(job: Job, split: Split, eager: bool = False) -> LayerTimes:
    """Only tp, cp, ep, sp, microbatch and recompute of a split matter: see `shared`."""
    computed, experts = compute_seconds(job, split, eager), experts_of(job, split)
    forward, back_input, back_weight = (
        PARTS * ceil(exact_ticks / split.tp) / TICKS
        for exact_ticks in (_ticks(seconds * split.tp / PARTS) for seconds in computed)
    )
    sent, sent_forward, added = (dict.fromkeys(("tp", "cp", "ep"), 0.0) for _ in range(3))
    added["tp"] = forward + back_input + back_weight - sum(computed)
    again = experts.products + experts.moved if "moe" in job.modules else 0.0
    forward, back_input = forward + experts.slower + experts.moved, back_input + experts.slower + experts.moved + again
    back_weight += experts.slower + experts.summed
    alone = forward, back_input + back_weight
    for axis, moves, width, ways in _exchanges(job, split):
        ranks = getattr(split, axis)
        seconds = [sum(n * moves.ticks(name, size, ranks) for name, size, n in calls) / TICKS for calls in ways]
        if axis == "ep" and job.ep_overlap:
            seconds = [sending - (1 - CONTENTION) * min(sending, of) for sending, of in zip(seconds, alone)]
        counts = [sum(n * elements_sent(name, size, ranks) for name, size, n in calls) for calls in ways]
        forward, back_input = forward + seconds[0], back_input + seconds[1]
        sent[axis], sent_forward[axis] = width * sum(counts), width * counts[0]
        added[axis] += sum(seconds)
    forward, back_input = max(forward, experts.host), max(back_input, 2 * experts.host - back_weight)
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
        # Tokens go to their experts and back, forward and backward (Lepikhin et al. 2021, GShard, 3.2). Layers without
        # experts send nothing, so the average layer sends less.
        share, (seconds, *rows) = model.expert_layers / model.layers, ep_traffic(job, split)
        elements = ep * ceil(share * tokens / tp * sum(rows) * model.hidden / (ep - 1))
        sending = share * (seconds - DISPATCH_CALL) * TICKS / elements_sent("dispatch", elements, ep)
        calls = dict.fromkeys(("dispatch", "collect"), _ticks(share * DISPATCH_CALL))
        moves = Moves(calls, dict.fromkeys(calls, exact(sending)))
        forth, back = ([(name, elements, n) for name in calls] for n in (1, 2 if "moe" in job.modules else 1))
        yield "ep", moves, 2, (forth, back)


def _moves(job: Job, split: Split, axis: str, per_element: float) -> Moves:
    """Prices of an axis; each element sent takes `per_element` seconds."""
    link, sending = link_of(job, split, axis), ("allreduce", "allgather", "scatterreduce")
    calls = {
        **dict.fromkeys(sending, _ticks(call_seconds(link, getattr(split, axis)))),
        "pass_to": _ticks(LATENCY[link]),
    }
    return Moves(calls, dict.fromkeys(calls, exact(per_element * TICKS)))


def link_of(job: Job, split: Split, axis: str) -> str:
    """The slowest link of an axis within a layer."""
    stride, count = {"tp": 1, "cp": split.tp, "ep": 1}[axis], getattr(split, axis)
    return job.gpu.link(job.gpu.members(stride, count), count)


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)

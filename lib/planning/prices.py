"""What a split costs: the bytes and times of a layer on the ranks that share it, and the prices of its pipeline's run.

Two kinds of code bound the memory of a run. *Fused* code keeps the least: it is compiled, has a fused loss, and leaves
the allocator's memory unfragmented. *Eager* code keeps the most: it runs single operations, and leaves holes. Bytes are
counted from tensors, not fitted; docs/truth.md compares published peaks.

Ranks along tp, cp and ep do the same for every layer and microbatch. Ticks and bytes of a layer are those of a run of
the ledger, which the tests play; what experts read and write, what overlaps, and a host that launches late are added to
it. They become the prices of `forward` and `backward` in the run of the full pipeline.

The terms of experts and their constants are from 43 published runs (docs/truth.md). Tried and left out, since it made
these worse: the bytes of making 8-bit rows, fewer rows for an expert that are slower, and a contention of 0.2; and for
ZeRO 3 beside a pipeline, gathers in each forward and backward, which explain one published run and contradict two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from math import ceil, comb
from types import MappingProxyType
from typing import NamedTuple

from lib import Costs, Setting
from lib.ledger.costs import Tier, elements_sent

from .job import CONTENTION, LATENCY, REACHED, Job, call_seconds
from .split import Split

# --- Bytes of a parameter and of a logit, by kernels ---

LOGITS = {"megatron": (6, 8), "pytorch": (6, 14)}
"""Bytes of each logit, fused and eager. Fused: the logit in 16 bits and its softmax in 32. Eager in PyTorch: the logit,
a copy in 32 bits, the log-softmax and the gradient."""

HOLES = {"megatron": 1.1, "pytorch": 1.3}
"""The most that an allocator reserves, as a multiple of the bytes in use. PyTorch's reserves 1.2 to 1.4 times what it
has allocated (measured on one GPU, docs/truth.md)."""

WIDE_TP, WIDE_TP_HOLES = 8, 1.15
"""From so many tensor parallel ranks on, PyTorch's published peaks exceed the counted bytes by up to half, for an
unknown reason. So the upper end of the range is multiplied by this factor."""

MOST_GATHERED, MOST_REDUCED = 10**9, 5 * 10**8
"""The most parameters of a layer that fused code gathers and reduces at a time with ZeRO 3: DeepSpeed's defaults of
stage3_max_live_parameters and reduce_bucket_size. Eager code takes a full layer."""

GATHERED = 2
"""Bytes of a gathered weight: it is gathered in 16 bits, even if its shards have 32."""


@dataclass(frozen=True)
class Widths:
    """Bytes of a parameter: `weight` as it is kept and `gathered`; `gradient` as it is kept and while it is being
    `reduced`; the optimizer's `state`; and `root` for an embedding or a head that stays gathered (FSDP)."""

    weight: int
    gathered: int
    gradient: int
    reduced: int
    state: int
    root: int = 0


def widths(job: Job, split: Split) -> Widths:
    """PyTorch's FSDP (ZeRO 3) shards weights and gradients in 32 bits, and the optimizer uses the sharded weight: 4 + 4
    + 8 bytes. A gradient is made in 16 bits, and copied if it is reduced in 32."""
    if job.kernels == "pytorch" and split.zero == 3:
        reduced = job.gradient + (GATHERED if job.gradient > GATHERED else 0)
        return Widths(4, GATHERED, 4, reduced, max(job.layer_state - 4, 0), GATHERED)
    return Widths(job.weight, min(job.weight, GATHERED), job.gradient, job.gradient, job.layer_state)


def updated_bytes(job: Job, split: Split) -> int:
    """Bytes that the optimizer reads and writes for each parameter: it reads the gradient, and reads and writes its
    state and the weight in 32 bits. Megatron's also writes the weight in 16 bits; PyTorch casts it in the next step."""
    wide = widths(job, split)
    if job.kernels == "pytorch":
        return wide.gradient + 2 * (wide.state + (wide.weight if split.zero == 3 else 0))
    return wide.gradient + 2 * wide.state + wide.weight


def logit_bytes(job: Job, eager: bool) -> int:
    return LOGITS[job.kernels][eager]


def with_holes(job: Job, split: Split, counted: int) -> int:
    """The most that eager code reserves if `counted` bytes are in use."""
    wide = WIDE_TP_HOLES if job.kernels == "pytorch" and split.tp >= WIDE_TP else 1.0
    return round(counted * HOLES[job.kernels] * wide)


# --- A layer on the ranks that share it ---

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

LAYER_TICKS = 10**7
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
        PARTS * ceil(exact_ticks / split.tp) / LAYER_TICKS
        for exact_ticks in (_layer_ticks(seconds * split.tp / PARTS) for seconds in computed)
    )
    sent, sent_forward, added = (dict.fromkeys(("tp", "cp", "ep"), 0.0) for _ in range(3))
    added["tp"] = forward + back_input + back_weight - sum(computed)
    again = experts.products + experts.moved if "moe" in job.modules else 0.0
    forward, back_input = forward + experts.slower + experts.moved, back_input + experts.slower + experts.moved + again
    back_weight += experts.slower + experts.summed
    alone = forward, back_input + back_weight
    for axis, moves, width, ways in _exchanges(job, split):
        ranks = getattr(split, axis)
        seconds = [sum(n * moves.ticks(name, size, ranks) for name, size, n in calls) / LAYER_TICKS for calls in ways]
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
        sending = share * (seconds - DISPATCH_CALL) * LAYER_TICKS / elements_sent("dispatch", elements, ep)
        calls = dict.fromkeys(("dispatch", "collect"), _layer_ticks(share * DISPATCH_CALL))
        moves = Moves(calls, dict.fromkeys(calls, exact(sending)))
        forth, back = ([(name, elements, n) for name in calls] for n in (1, 2 if "moe" in job.modules else 1))
        yield "ep", moves, 2, (forth, back)


def _moves(job: Job, split: Split, axis: str, per_element: float) -> Moves:
    """Prices of an axis; each element sent takes `per_element` seconds."""
    link, sending = link_of(job, split, axis), ("allreduce", "allgather", "scatterreduce")
    calls = {
        **dict.fromkeys(sending, _layer_ticks(call_seconds(link, getattr(split, axis)))),
        "pass_to": _layer_ticks(LATENCY[link]),
    }
    return Moves(calls, dict.fromkeys(calls, exact(per_element * LAYER_TICKS)))


def link_of(job: Job, split: Split, axis: str) -> str:
    """The slowest link of an axis within a layer."""
    stride, count = {"tp": 1, "cp": split.tp, "ep": 1}[axis], getattr(split, axis)
    return job.gpu.link(job.gpu.members(stride, count), count)


def _layer_ticks(seconds: float) -> int:
    return round(seconds * LAYER_TICKS)


# --- The pipeline: a cost record by size, and the bytes of each value ---

UNIT = 1000
"""Ticks in a step: a step is a millisecond, a tick a microsecond."""

TICKS = 10**6
"""Ticks in a second."""

MAX_BUCKETS = 16
"""About how many units the layers of a replica's pipeline are joined to; units are reduced one by one."""


LOSS_PASSES = 44
"""Bytes that PyTorch's cross entropy reads and writes for each logit: a cast to 32 bits 6, the log-softmax 16 (it reads
three times), an empty gradient 4, the gradient 12, a cast back 6."""

WEIGHT_CASTS, GRADIENT_CASTS = 10, 14
"""Bytes that FSDP2 on one GPU reads and writes for each parameter: once a step a cast of the weight to 16 bits (6) and
a copy into the gathered weights (4); for each microbatch a cast of the gradient to 32 bits (6) and a copy (8)."""


@dataclass(frozen=True)
class SplitSizes:
    """What a split holds. A unit is some layers of one stage, which the run plays as one layer.

    Bytes: `kept` of a unit for the backward of a microbatch; `border` of an activation between units; `weight`,
    `gradient` and `state` of a unit, whose shards are `shard` times as large as even ones (experts have fewer copies);
    `gathered` and `reduced` while its weight and gradient are unsharded (ZeRO 2 and 3); `first` and `last` on the ranks
    with the embedding and the head; `workspace` on each rank.
    """

    units: tuple[int, ...]
    """The units of each stage."""
    layers: int
    """The layers of each unit."""
    replicas: int
    parameters: int
    kept: int
    border: int
    weight: int
    gathered: int
    gradient: int
    reduced: int
    state: int
    shard: Fraction
    first: int
    last: int
    workspace: int


@dataclass(frozen=True)
class Prices(SplitSizes):
    """The prices of a split. Ticks: `forward`, `back_input` and `back_weight` of a unit, `loss` (the head, forward and
    backward), `message`; for each unit `reduce` (its gradient), `gather` (its weight), `update`, `copy` (its state to
    or from the host)."""

    forward: int
    back_input: int
    back_weight: int
    loss: int
    message: int
    reduce: int
    gather: int
    update: int
    copy: int


@cache
def sizes(job: Job, split: Split, eager: bool = False) -> SplitSizes:
    """What a split that fits the job holds, in fused or in eager code."""
    job = of_layers(job, split)
    model, tp = job.model, split.tp
    units, layers = units_of(job, split)
    layer, ends, alone = sum(weights_of_layer(job, split)), model.vocabulary_weights / tp, split.pp == 1
    parameters = round(layers * layer + (2 * ends / units[0] if alone else 0))
    wide, replicas, tokens = widths(job, split), split.sharing, tokens_of(job, split)
    of_states = wide.state + job.state - job.layer_state if split.offload == "none" else 0
    by_zero = (1, of_states), (2, wide.gradient), (3, wide.weight)
    whole = wide.root + sum(width for zero, width in by_zero if split.zero < zero)
    sharded = sum(width for zero, width in by_zero if split.zero >= zero)
    unlike = ends - (layer if _counts_ends(job, split) else 0)
    of_end = 0 if alone else round(unlike * ((whole * replicas + sharded) / replicas))
    logits = logit_bytes(job, eager) * tokens * model.vocab / tp / job.loss_chunks
    return SplitSizes(
        units=units,
        layers=layers,
        replicas=replicas,
        parameters=parameters,
        kept=round(layers * activation_bytes(job, split, eager)),
        border=2 * (tokens * model.hidden // tp),
        weight=parameters * wide.weight,
        gathered=(parameters if eager else min(parameters, MOST_GATHERED)) * wide.gathered,
        gradient=parameters * wide.gradient,
        reduced=(min(parameters, MOST_REDUCED) if split.zero == 3 and not eager else parameters) * wide.reduced,
        state=round(parameters * wide.state + (parameters - layers * layer) * (job.state - job.layer_state)),
        shard=shards_of(job, split),
        first=round(2 * ends * wide.root) if alone else of_end,
        last=of_end + round(logits),
        workspace=round(workspace_bytes(job, split, eager)),
    )


def _counts_ends(job: Job, split: Split) -> bool:
    """Whether the embedding and the head are among the layers of the stages."""
    return sum(split.stage_layers(job)) > job.model.layers


@cache
def prices(job: Job, split: Split, eager: bool = False) -> Prices:
    """The prices of a split that fits the job. Computation takes longer where collectives overlap with it: forward and
    backward with ZeRO 3, backward with ZeRO 2, and otherwise the last microbatch's backward. The last is counted in the
    update, since it happens once a step. Times and bytes are those of fused or of eager code, whose times differ for
    PyTorch's kernels."""
    held = sizes(job, split, eager)
    job = of_layers(job, split)
    units, layers, replicas, parameters = held.units, held.layers, held.replicas, held.parameters
    gpu, shards, counted = job.gpu, replicas if split.zero else 1, _counts_ends(job, split)
    ends = job.model.vocabulary_weights / split.tp
    times = layer_times(job, shared(split), eager and job.kernels == "pytorch")
    # The first and the last rank update the embedding and the head too; the step waits for them.
    updated = parameters if split.pp == 1 or counted else parameters + ends * split.pp / sum(units)
    update = float(held.shard) * updated * updated_bytes(job, split) / shards / gpu.bytes_per_second
    cast_weight, cast_gradient = cast_seconds(job, parameters)
    tokens = tokens_of(job, split)
    head = (1 + job.mtp) * 3 * 2 * tokens * ends / (gpu.flops * job.efficiency) + loss_seconds(job, split)
    moves = moves_of(job, split)
    reduce = moves.ticks("scatterreduce" if split.zero else "allreduce", parameters, replicas)
    gather = moves.ticks("allgather", parameters // replicas, replicas)
    matrices = float(held.shard) * layers * sum(weights_of_layer(job, split))
    orthogonal = _orthogonalized(job, split, layers, matrices, gather) if job.optimizer == "muon" else 0
    again = times.forward / split.every if split.recompute == "full" and split.every > 1 else 0.0
    copy = copied_bytes(job, split) / (gpu.host * REACHED)
    forward = round(layers * max(times.forward, copy) * TICKS)
    back_weight = round((layers * times.backward_weight + cast_gradient) * TICKS)
    back_input = round(layers * max(times.backward_input + again, copy - times.backward_weight) * TICKS)
    recomputed = forward if split.recompute == "full" and split.every == 1 else 0
    backward = recomputed + back_input + back_weight
    waits = CONTENTION if job.overlap and replicas > 1 else 0
    reduction = reduce * split.reductions(job) / split.batches(job)
    slower_forward = waits * min(forward, gather) if split.zero == 3 else 0
    slower = waits * min(backward, {2: reduction, 3: gather + reduce}.get(split.zero, 0))
    slower -= slower_forward if recomputed else 0  # which the forward that is run again has in its price
    once = waits * min(backward, reduce) if split.zero < 2 else 0  # only the last microbatch's backward
    return Prices(
        **vars(held),
        forward=round(forward + slower_forward),
        back_input=round(back_input + slower / 2),
        back_weight=round(back_weight + slower / 2),
        loss=0 if counted else _ticks(head),
        message=moves.ticks("pass_to", held.border // 2, 2),
        reduce=reduce,
        gather=gather,
        update=round((update + cast_weight) * TICKS + once + orthogonal),
        copy=moves.by_size("fetch", parameters // shards),
    )


def loss_seconds(job: Job, split: Split) -> float:
    """Seconds of a microbatch's loss, forward and backward, without the head's products: of fused code, and for one GPU
    by kernel of PyTorch's, with the last norm and the embedding's gradient, which begins as zeros."""
    model, gpu, tokens = job.model, job.gpu, tokens_of(job, split)
    if job.by_kernel:
        moved = tokens * (LOSS_PASSES * model.vocab + model.last_norm_bytes) + 2 * model.vocabulary_weights
        return (1 + job.mtp) * moved / gpu.bytes_per_second
    return (1 + job.mtp) * (2 * logit_bytes(job, False) * tokens * model.vocab / split.tp / gpu.bandwidth)


def cast_seconds(job: Job, parameters: int) -> tuple[float, float]:
    """Seconds in which one GPU by kernel copies weights, once a step, and gradients, for each microbatch. Rates that
    are fitted to runs of many GPUs contain these copies."""
    each = parameters / job.gpu.bytes_per_second if job.by_kernel else 0.0
    return WEIGHT_CASTS * each, GRADIENT_CASTS * each


def _orthogonalized(job: Job, split: Split, layers: int, matrices: float, gather: float) -> float:
    """Ticks of Muon in an update of some layers: full matrices are gathered, along tp, and over the replicas if states
    are sharded. Then their owners share the iterations; without ZeRO every rank does all."""
    dense, routed = job.model.orthogonalizing_flops()
    replicas, tp, gpu = split.sharing if split.zero else 1, split.tp, job.gpu
    work = (dense + routed / split.ep) * layers / job.model.layers / (replicas * tp if split.zero else 1)
    sent = GATHERED * (tp - 1) * matrices / replicas / gpu.rate(min(tp, gpu.machine), tp)
    return (work / (gpu.flops * job.efficiency) + sent) * TICKS + (gather if split.zero else 0)


def moves_of(job: Job, split: Split) -> Moves:
    """The prices of what a pipeline and its replicas send."""
    gpu, replicas = job.gpu, split.sharing
    members = members_of_replicas(job, split, replicas)
    rate = gpu.rate(members, replicas)
    stages = gpu.members(split.adjacent, split.pp)
    wide = widths(job, split)
    state = shards_of(job, split) * wide.state
    groups, near = between_groups(job, split)
    between = call_seconds(gpu.link(near, groups), groups) if groups > 1 else 0.0
    sent = sent_between(split) * job.gradient / gpu.rate(near, groups)
    call, host = _ticks(call_seconds(gpu.link(members, replicas), replicas)), _ticks(LATENCY["host"])
    seconds = {  # of each call besides its bytes, in ticks, and of each element
        **dict.fromkeys(("allreduce", "scatterreduce"), (call + _ticks(between), job.gradient / rate + sent)),
        "allgather": (call, wide.gathered / rate),
        "pass_to": (_ticks(LATENCY[gpu.link(stages, split.pp)]), 2 / gpu.rate(stages, split.pp)),
        **dict.fromkeys(("offload", "fetch"), (host, float(state) / (gpu.host * REACHED))),
    }
    beta = {name: exact(per_element * TICKS) for name, (_, per_element) in seconds.items()}
    return Moves({name: ticks for name, (ticks, _) in seconds.items()}, beta)


def of_layers(job: Job, split: Split) -> Job:
    """The job as its layers see it: modules of layers that are recomputed in full do not count."""
    return replace(job, modules=()) if job.modules and split.recompute == "full" else job


def weights_of_layer(job: Job, split: Split) -> tuple[float, float]:
    """Weights of an average layer on a rank: those that all replicas have, and those of its experts, which are cut
    along tp only if no ranks share the experts."""
    dense, routed = (weights / job.model.layers for weights in (job.model.dense_weights, job.model.routed_weights))
    return dense / split.tp, routed / (split.ep if split.ep > 1 else split.tp)


def shards_of(job: Job, split: Split) -> Fraction:
    """How much larger the shards of a layer are than even ones, because its experts have fewer copies."""
    if not split.zero or split.ep == 1:
        return Fraction(1)
    even, uneven = (round(sum(weights_of_layer(job, other))) for other in (replace(split, ep=1), split))
    return Fraction(even, uneven)


@cache
def setting_of(job: Job, split: Split) -> Setting:
    """The setting of a run of all ranks, whose collectives are priced by what their ranks send."""
    priced, moves = prices(job, split), moves_of(job, split)
    halves = {"backward_input": priced.back_input, "backward_weight": priced.back_weight}
    ticks = {"forward": priced.forward, "backward": sum(halves.values()), **halves}
    ticks |= {"loss": priced.loss, "update": priced.update, "receive": 0}
    costs = Costs(
        f"{job.model.name} on {job.gpu.name}",
        hidden=job.model.hidden // split.tp,
        length=tokens_of(job, split),
        parameters=priced.parameters,
        ticks=MappingProxyType(ticks),
        unit=UNIT,
        overlap=True,
        lanes="group",
        tiers=MappingProxyType({"host": Tier(0, 0)} if split.offload == "states" else {}),
        calls=MappingProxyType(dict(moves.calls)),
        beta=MappingProxyType(dict(moves.beta)),
    )
    replicas = {"dp": priced.replicas} if priced.replicas > 1 else {}
    return Setting(costs, mesh={**replicas, "pp": split.pp})


def setting_of_replica(job: Job, split: Split) -> Setting:
    """The setting of a run of one replica, whose collectives and copies take as long as among all replicas."""
    priced, setting = prices(job, split), setting_of(job, split)
    ticks = {"allreduce": priced.reduce, "scatterreduce": priced.reduce, "allgather": priced.gather}
    ticks |= {"offload": priced.copy, "fetch": priced.copy}  # of a state, which is whole here
    beta = {name: each for name, each in setting.costs.beta.items() if name not in ("offload", "fetch")}
    calls = {**setting.costs.calls, **ticks}
    costs = replace(setting.costs, calls=MappingProxyType(calls), beta=MappingProxyType(beta))
    return replace(setting, costs=costs, mesh=(("dp", 1), ("pp", split.pp)))


def units_of(job: Job, split: Split) -> tuple[tuple[int, ...], int]:
    """The units of each stage, and the layers of a unit. Stages of different sizes have units of one layer."""
    stages = split.stage_layers(job)
    layers = stages[0]
    if split.zero == 3 or len(set(stages)) > 1:
        return stages, 1
    units = max(n for n in range(1, layers + 1) if layers % n == 0 and (n == 1 or n * len(stages) <= MAX_BUCKETS))
    return (units,) * len(stages), layers // units


def members_of_replicas(job: Job, split: Split, count: int) -> int:
    """How many ranks of a group of `count` replicas share a machine. Ranks along cp and those that share experts are
    adjacent; others are a whole pipeline apart."""
    inner = split.adjacent
    near = min(inner // split.tp, max(1, job.gpu.machine // split.tp))
    pipelines = max(1, job.gpu.machine // (inner * split.pp)) if inner <= job.gpu.machine else 1
    return min(count, near * pipelines)


# --- Groups that have all shards each (HSDP): their all-reduce of shards follows the reduction within a group ---


def between_groups(job: Job, split: Split) -> tuple[int, int]:
    """The number of groups, and how many of them have a member in a machine."""
    groups = split.dp * split.cp // split.sharing
    return groups, max(1, members_of_replicas(job, split, split.dp * split.cp) // split.sharing)


def sent_between(split: Split) -> float:
    """Bytes sent between groups, to all-reduce shards, for each byte that a reduction sends within a group."""
    groups = split.dp * split.cp // split.sharing
    return 2 * (groups - 1) / (groups * (split.sharing - 1)) if groups > 1 else 0.0


def _ticks(seconds: float) -> int:
    return round(seconds * TICKS)

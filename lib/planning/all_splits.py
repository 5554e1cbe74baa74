"""Every split of a job that is tried, with lower bounds on time and memory."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any, NamedTuple

from .cost_model import Prices, Sizes, members_of_replicas, prices, sizes
from .job import Job
from .split import CHUNKED, OFFLOADED, RECOMPUTED, Split, divisors, problems

MICROBATCHES = (1, 2, 4, 8)
EVERY = (1, 2)
"""Full recomputation is tried for every layer, and for every second layer."""

MAX_CHUNKS = 8
MAX_STAGES = 64
"""The most ranks of a pipeline that are tried, unless the caller fixes pp."""

MAX_CELLS = 8_200
"""The most cells of a pipeline's timetable that are tried, unless the caller fixes pp: a run of more takes seconds."""

FEW_LAYERS = 2
"""Chunks of up to so many layers may have fewer layers, or none, in the first and the last stage."""

LONG = 16384
"""Sequences with more tokens are also split along cp."""


class Bound(NamedTuple):
    """Lower bounds on the ticks and bytes of a split."""

    ticks: int
    bytes: float
    split: Split


def splits(job: Job, fixed: Mapping[str, Any]) -> Iterator[Split]:
    """Every split that divides the job. Schedules that another one always beats are left out, unless the caller fixes
    them: gpipe and breadth_first hold more than 1f1b and interleaved, and take as long."""
    model = job.model

    def of(name: str, usual: Any) -> Any:
        return (fixed[name],) if name in fixed else tuple(usual)

    wide = [n for n in divisors(job.gpu.machine) if model.heads % n == 0]
    even = {n for layers in (model.layers, model.layers + 2) for n in divisors(layers)}
    powers = {2**k for k in range(1, 7)} if not even & {4, 8, 16} else set()
    layers = fixed.get("layers", ())
    deep = sorted(n for n in even | powers if n <= min(MAX_STAGES, model.layers))
    if isinstance(layers, tuple) and layers:
        deep = divisors(len(layers))
    long = [n for n in divisors(job.gpus) if n <= 32] if job.sequence > LONG else [1]
    experts = divisors(model.experts) if model.experts else [1]
    unusual = ("selective" if job.flash else "", "ops" if job.kernels == "megatron" else "")
    recomputed = [name for name in RECOMPUTED if name not in unusual]
    warmup = fixed.get("warmup", 0)
    outer = product(
        of("tp", wide), of("pp", deep), of("cp", long), of("ep", experts), of("microbatch", MICROBATCHES),
        of("sp", (True,)), of("recompute", recomputed), of("every", EVERY),
    )  # fmt: skip
    for tp, pp, cp, ep, microbatch, sp, recompute, every in outer:
        inner = size_of(tp, pp, cp)
        if not inner or job.gpus % inner:
            continue
        dp = job.gpus // inner
        if fixed.get("dp", dp) != dp or ("every" not in fixed and every > 1 and recompute != "full"):
            continue
        for schedule, chunks in _orders(job, pp, fixed):
            axes = dp, tp, pp, cp, ep, sp
            first = Split(*axes, 1, schedule, chunks, microbatch, recompute, every=every, layers=layers, warmup=warmup)
            if next(problems(job, first), None) is not None:
                continue
            sizes = first.stage_layers(job)
            many = len(set(sizes)) > 1 and (len(set(sizes[1:-1])) > 1 or max(sizes) > FEW_LAYERS)
            if many and chunks > 1 and not {"chunks", "schedule", "layers"} & set(fixed):
                continue  # a caller who names chunks or a schedule gets them
            if "pp" not in fixed and cells(job, first) > MAX_CELLS:
                continue
            for zero, offload in product(of("zero", (0, 1, 2, 3)), of("offload", OFFLOADED[:1])):
                for shards in of("shards", _shards(job, first, zero)):
                    split = replace(first, zero=zero, offload=offload, shards=shards)
                    if ("zero" not in fixed and zero and dp * cp == 1) or next(problems(job, split), None) is not None:
                        continue
                    yield split


def _shards(job: Job, split: Split, zero: int) -> tuple[int, ...]:
    """The sizes of sharing groups to try. With ZeRO 3 the replicas of a machine may share all shards (HSDP)."""
    near = members_of_replicas(job, split, split.dp * split.cp)
    return (0, near) if zero == 3 and 1 < near < split.dp * split.cp else (0,)


def cells(job: Job, split: Split) -> int:
    """The number of cells in a pipeline's timetable."""
    return split.batches(job) * split.stages * (3 if split.schedule.startswith("zb") else 2)


def size_of(*axes: Any) -> int:
    """The number of ranks along some axes; 0 if an axis has no valid length."""
    return prod(axes) if all(type(axis) is int and axis > 0 for axis in axes) else 0


def _orders(job: Job, pp: int, fixed: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The schedules and chunks to try with `pp` ranks in a pipeline."""
    usual = ("1f1b",) if pp == 1 else ("1f1b", "interleaved", "zb_h1", "zb_v")
    for schedule in (fixed["schedule"],) if "schedule" in fixed else usual:
        chunks = range(2, MAX_CHUNKS + 1) if schedule in CHUNKED else range(2, 3) if schedule == "zb_v" else range(1, 2)
        for count in (fixed["chunks"],) if "chunks" in fixed else chunks:
            yield schedule, count


# --- Bounds ---


def lower_bound(job: Job, split: Split) -> Bound:
    """Bounds on the time of every run of a split, and on the memory of its fullest rank."""
    return Bound(least_ticks(job, split), least_bytes(job, split), split)


def _units_of_ranks(split: Split, units: tuple[int, ...]) -> list[tuple[int, int]]:
    """The ranks that bounds count, with their units: the first, the last, and for stages of different sizes the last of
    the ranks with the most units."""
    if len(set(units)) == 1:
        return [(rank, split.chunks * units[0]) for rank in {0, split.pp - 1}]
    ranks = [(rank, sum(units[stage] for stage in split.stages_of(rank))) for rank in range(split.pp)]
    return [ranks[0], ranks[-1], max(ranks, key=lambda rank: rank[::-1])]


def least_ticks(job: Job, split: Split) -> int:
    priced = prices(job, split)
    return max(_least_ticks(job, split, priced, *rank) for rank in _units_of_ranks(split, priced.units))


def least_bytes(job: Job, split: Split) -> float:
    held = sizes(job, split)
    return max(_least_bytes(job, split, held, *rank) for rank in _units_of_ranks(split, held.units))


def _least_ticks(job: Job, split: Split, priced: Prices, rank: int, of_rank: int) -> int:
    """A rank waits for the forwards of the stages before its first one. Then it computes all its microbatches, or its
    replicas' lane is busy all the time. After its last backward the stages before it follow, unless weight halves come
    last, and then the updates."""
    m, alone, forward = split.batches(job), priced.replicas == 1, priced.forward
    gather = 0 if alone or split.zero < 3 else priced.gather
    reduce = 0 if alone or split.zero < 2 else priced.reduce
    again = forward if split.recompute == "full" and split.every == 1 else 0
    backward = priced.back_input + priced.back_weight + again
    before = sum(priced.units[:rank])
    filled = rank - priced.units[:rank].count(0)
    wait = max(before * forward, before * gather + filled * forward) + rank * priced.message
    stages = split.stages_of(rank)
    compute = m * (of_rank * (forward + backward) + (priced.loss if split.stages - 1 in stages else 0))
    reductions = split.reductions(job) * of_rank - priced.units[rank]
    lane = m * 2 * (of_rank - len(stages)) * gather + reductions * reduce
    after, updated = 0, of_rank
    if not split.schedule.startswith("zb"):
        after = max(before * backward, (before - filled) * gather + filled * backward) + rank * priced.message
        updated = sum(priced.units[stage] for stage in split.stages_of(0))
    last = priced.update if alone else priced.update + priced.reduce + (priced.gather if split.zero in (1, 2) else 0)
    return wait + max(compute, lane) + after + (max(last, updated * priced.update) if updated else 0)


def _least_bytes(job: Job, split: Split, priced: Sizes, rank: int, of_rank: int) -> float:
    """The weights and states of a rank, and its activations in flight or its gradients."""
    m, p, v, alone = split.batches(job), split.pp, split.chunks, priced.replicas == 1
    in_flight, stages = chunks_in_flight(split, m, rank), split.stages_of(rank)
    share = float(priced.shard) / priced.replicas
    of_unit = priced.state * (share if split.zero else 1)
    state, fetched = (0, of_unit) if split.offload == "states" else (of_unit, 0)
    weight = priced.weight * (share if split.zero == 3 else 1)
    gradient = priced.gradient * (share if split.zero > 1 else 1)
    full = m * v >= in_flight + 2 * p * v  # else the first backward may come after the fullest moment
    units = min(priced.units[stage] for stage in stages)
    at_most = in_flight * units * priced.kept + (of_rank * gradient if full else 0)
    bytes_held = of_rank * (state + weight) + max(at_most, (of_rank - 1) * gradient + fetched) + priced.workspace
    bytes_held += (priced.first if rank == 0 else 0) + (priced.last if split.stages - 1 in stages else 0)
    bytes_held += priced.gathered if split.zero == 3 and not alone and of_rank else 0
    return int(bytes_held) - of_rank


def chunks_in_flight(split: Split, m: int, rank: int = 0) -> int:
    """A lower bound on the chunks that a rank keeps (docs/truth.md compares the first rank's number with runs)."""
    p, v = split.pp, split.chunks
    match split.schedule:
        case "1f1b" | "zb_h1":
            return min(p - rank, m)
        case "interleaved":
            kept = p * v + p - 1 - 2 * rank
            return min(kept, split.warmup + 1 - rank if split.warmup else kept, m * v)
        case "zb_v":
            return 1 if rank else 2 * p if m >= 2 * p else m
    return m * v

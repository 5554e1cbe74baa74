"""Every split of a job that is tried, with lower bounds on its time and memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any, NamedTuple

from .cost_model import members_of_replicas, prices
from .job import Job
from .split import CHUNKED, OFFLOADED, RECOMPUTED, Split, divisors, problems

MICROBATCHES = (1, 2, 4, 8)
EVERY = (1, 2)
"""Of how many layers one is computed again, where recomputation is full."""

MAX_CHUNKS = 8
MAX_STAGES = 64
"""Ranks of a pipeline that are tried, unless more are asked for."""

MAX_CELLS = 8_200
"""Cells of a pipeline's timetable that are tried, unless its stages are asked for: a run of more takes seconds."""

LONG = 16384
"""Tokens of a sequence from which on its context is split too."""


class Bound(NamedTuple):
    """The least ticks and bytes that a split can take."""

    ticks: int
    bytes: float
    split: Split


def splits(job: Job, fixed: Mapping[str, Any]) -> Iterator[Split]:
    """Every split that divides the job. Not all schedules: those that another beats by definition are left out
    (gpipe and breadth_first hold more than 1f1b and interleaved, and take as long) unless they are asked for."""
    model = job.model

    def of(name: str, usual: Any) -> Any:
        return (fixed[name],) if name in fixed else tuple(usual)

    wide = [n for n in divisors(job.gpu.machine) if model.heads % n == 0]
    even = {n for layers in (model.layers, model.layers + 2) for n in divisors(layers)}
    powers = {2**k for k in range(1, 7)} if not even & {4, 8, 16} else set()
    deep = sorted(n for n in even | powers if n <= min(MAX_STAGES, model.layers))
    long = [n for n in divisors(job.gpus) if n <= 32] if job.sequence > LONG else [1]
    experts = divisors(model.experts) if model.experts else [1]
    layers = fixed.get("layers", ())
    unusual = ("selective" if job.flash else "", "ops" if job.kernels == "megatron" else "")
    recomputed = [name for name in RECOMPUTED if name not in unusual]
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
            first = Split(
                dp, tp, pp, cp, ep, sp, 1, schedule, chunks, microbatch, recompute, every=every, layers=layers
            )
            if next(problems(job, first), None) is not None:
                continue
            uneven = len(set(first.stage_layers(job))) > 1
            if uneven and chunks > 1 and not {"chunks", "schedule", "layers"} & set(fixed):
                continue  # they are many: a caller who names chunks or a schedule gets them
            if "pp" not in fixed and cells(job, first) > MAX_CELLS:
                continue
            for zero, offload in product(of("zero", (0, 1, 2, 3)), of("offload", OFFLOADED[:1])):
                for shards in of("shards", _shards(job, first, zero)):
                    split = replace(first, zero=zero, offload=offload, shards=shards)
                    if ("zero" not in fixed and zero and dp * cp == 1) or next(problems(job, split), None) is not None:
                        continue
                    yield split


def _shards(job: Job, split: Split, zero: int) -> tuple[int, ...]:
    """With ZeRO 3 shards are among all replicas, or within a machine (HSDP)."""
    near = members_of_replicas(job, split, split.dp * split.cp)
    return (0, near) if zero == 3 and 1 < near < split.dp * split.cp else (0,)


def cells(job: Job, split: Split) -> int:
    """What the ranks of a pipeline compute in a step, in cells of its timetable."""
    return split.batches(job) * split.stages * (3 if split.schedule.startswith("zb") else 2)


def size_of(*axes: Any) -> int:
    size = 1
    for axis in axes:
        if type(axis) is not int or axis < 1:
            return 0
        size *= axis
    return size


def _orders(job: Job, pp: int, fixed: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """The schedules to try on so many stages, with their chunks."""
    usual = ("1f1b",) if pp == 1 else ("1f1b", "interleaved", "zb_h1", "zb_v")
    for schedule in (fixed["schedule"],) if "schedule" in fixed else usual:
        chunks = range(2, MAX_CHUNKS + 1) if schedule in CHUNKED else range(2, 3) if schedule == "zb_v" else range(1, 2)
        for count in (fixed["chunks"],) if "chunks" in fixed else chunks:
            yield schedule, count


# --- Bounds ---


def lower_bound(job: Job, split: Split) -> Bound:
    """No run of a split is faster, or takes less on the first rank.

    Time: the last stage waits for p - 1 forwards, and then computes all its microbatches; or the lane of the replicas
    is busy all the time. Memory: the weights and the states, and the activations in flight.
    """
    priced, m, p, v = prices(job, split), split.batches(job), split.pp, split.chunks
    units, alone = min(priced.units), priced.replicas == 1
    mine = units * v
    forward = units * priced.forward
    backward = units * (priced.back_input + priced.back_weight) + (
        forward if split.recompute == "full" and split.every == 1 else 0
    )
    ramp = (p - 1) * (forward + priced.message)
    ramp += 0 if split.schedule.startswith("zb") else (p - 1) * (backward + priced.message)
    last = priced.update if alone else priced.update + priced.reduce + (priced.gather if split.zero in (1, 2) else 0)
    head = m * priced.loss
    if split.schedule == "zb_v":  # the head is on the first rank, which does not wait
        head, ramp = 0, max(head, ramp)
    compute = m * v * (forward + backward) + head + ramp + max(last, mine * priced.update)
    each = priced.forward + priced.back_input + priced.back_weight
    compute = max(compute, -(-sum(priced.units) // p) * m * each)  # the rank with most of uneven stages
    passes = {2: priced.reduce * units, 3: priced.reduce * units + 2 * priced.gather * (units - 1)}
    lane = 0 if alone else m * v * passes.get(split.zero, 0)
    in_flight = chunks_in_flight(split, m)
    share = float(priced.shard) / priced.replicas
    of_unit = priced.state * (share if split.zero else 1)
    state, fetched = (0, of_unit) if split.offload == "states" else (of_unit, 0)
    weight = priced.weight * (share if split.zero == 3 else 1)
    gradient = priced.gradient * (share if split.zero > 1 else 1)
    full = m * v >= in_flight + 2 * p * v  # else the first backward may come after the fullest moment
    at_most = in_flight * units * priced.kept + (mine * gradient if full else 0)
    held = mine * (state + weight) + max(at_most, (mine - 1) * gradient + fetched) + priced.first + priced.workspace
    held += priced.last if p == 1 or split.schedule == "zb_v" else 0
    held += priced.gathered if split.zero == 3 and not alone else 0
    return Bound(max(compute, lane), int(held) - mine, split)


def chunks_in_flight(split: Split, m: int) -> int:
    """Chunks that the first rank keeps at most (docs/truth.md compares these with runs); of few in a V, not fewer."""
    p, v = split.pp, split.chunks
    match split.schedule:
        case "1f1b" | "zb_h1":
            return min(p, m)
        case "interleaved":
            return min(p * v + p - 1, m * v)
        case "zb_v":
            return 2 * p if m >= 2 * p else m
    return m * v

"""Finds the best splits of a job: all that divide, ranked by estimates, and the best of them played in the ledger.

A split is estimated only while its lower bounds on time and memory leave it a chance, so nothing better is lost.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

from lib.errors import RuleError

from .cost_model import prices
from .job import GIB, Job
from .largest import memory_advice
from .plans import Plan, plan
from .split import CHUNKED, OFFLOADED, RECOMPUTED, Split, divisors, problems, require_fit
from .steady import estimated

MICROBATCHES = (1, 2, 4, 8)
MAX_CHUNKS = 8
MAX_STAGES = 64
"""Ranks of a pipeline that are tried, unless more are asked for."""

MAX_CELLS = 12_500
"""Cells of a pipeline's timetable that are tried, unless its stages are asked for: a run of more takes seconds."""

LONG = 16384
"""Tokens of a sequence from which on its context is split too."""

SPLITS_TRIED = 24
"""Splits that are estimated to say how little memory would do."""

NEARLY_AS_SMALL = 0.95
"""A split that can be at most so little smaller than a faster one is left out of the front."""


class Bound(NamedTuple):
    """The least ticks and bytes that a split can take."""

    ticks: int
    bytes: float
    split: Split


@dataclass(frozen=True)
class Search:
    """What a search has found: the fastest plans that fit, ascending by time, and the front: each is slower
    than the one before it, and smaller. `considered` splits divide the job, `fitting` of them may fit by their bounds,
    `estimated` were estimated."""

    job: Job
    best: tuple[Plan, ...]
    front: tuple[Plan, ...]
    considered: int
    fitting: int
    estimated: int


def search(job: Job, best: int = 5, front: int = 6, **fixed: Any) -> Search:
    """The fastest splits of a job that fit its GPUs' memory; `fixed` are fields of a Split that every one must have.
    States go to the host only if that is asked for, or if nothing fits otherwise.

    Raises:
        RuleError: no split divides, or none fits; the text says what would. Or `best` or `front` is no count.
    """
    for name in fixed:
        if name not in Split.__dataclass_fields__:
            raise RuleError(f"a split has no {name!r}; it has {', '.join(Split.__dataclass_fields__)}")
    for name, count in (("best", best), ("front", front)):
        if type(count) is not int or count < 1:
            raise RuleError(f"{name} is how many plans to find, a whole number from 1 on; got {count!r:.40}")
    bounds = sorted((lower_bound(job, split) for split in splits(job, fixed)), key=lambda bound: bound[:2])
    if not bounds:
        refuse_all(job, fixed)
    fitting = [bound for bound in bounds if bound.bytes <= job.gpu.usable]
    fastest: list[tuple[int, int, int]] = []
    smaller: list[tuple[int, int, int]] = []
    """Of what was estimated, the front: each is slower than the one before it, and smaller."""
    tried: list[Split] = []
    for bound in fitting:
        slower = len(fastest) >= best and bound.ticks > fastest[best - 1][0]
        if slower and any(ticks <= bound.ticks and NEARLY_AS_SMALL * peak <= bound.bytes for ticks, peak, _ in smaller):
            continue
        ticks, peak = estimated(job, bound.split)
        tried.append(bound.split)
        if peak > job.gpu.usable:
            continue
        found = (ticks, peak, len(tried) - 1)
        insort(fastest, found)
        if not any(other[0] <= ticks and other[1] <= peak for other in smaller):
            smaller = sorted([one for one in smaller if one[0] < ticks or one[1] < peak] + [found])
    if not fastest and "offload" not in fixed:
        return search(job, best, front, **fixed, offload="states")
    if not fastest:
        raise RuleError(nothing_fits(job, fixed, bounds))
    shown = _spread(smaller, front)
    plans = {k: plan(job, tried[k]) for _, _, k in sorted({*fastest[:best], *shown})}
    return Search(
        job,
        tuple(plans[k] for _, _, k in fastest[:best]),
        tuple(plans[k] for _, _, k in shown),
        len(bounds),
        len(fitting),
        len(tried),
    )


def _spread(front: list[tuple[int, int, int]], count: int) -> list[tuple[int, int, int]]:
    """At most `count` of a front: the fastest, the smallest, and others that are far apart in memory."""
    if len(front) <= count:
        return front
    high, low = front[0][1], front[-1][1]
    wanted = [high - (high - low) * k / max(count - 1, 1) for k in range(count)]
    return sorted({min(front, key=lambda one: abs(one[1] - at)) for at in wanted})


# --- All splits ---


def splits(job: Job, fixed: Mapping[str, Any]) -> Iterator[Split]:
    """Every split that divides the job. Not all schedules: those that another beats by definition are left out
    (gpipe and breadth_first hold more than 1f1b and interleaved, and take as long) unless they are asked for."""
    model = job.model

    def of(name: str, usual: Any) -> Any:
        return (fixed[name],) if name in fixed else tuple(usual)

    wide = [n for n in divisors(job.gpu.machine) if model.heads % n == 0]
    deep = sorted({n for layers in (model.layers, model.layers + 2) for n in divisors(layers) if n <= MAX_STAGES})
    long = [n for n in divisors(job.gpus) if n <= 32] if job.sequence > LONG else [1]
    experts = divisors(model.experts) if model.experts else [1]
    unusual = ("selective" if job.flash else "", "ops" if job.kernels == "megatron" else "")
    recomputed = [name for name in RECOMPUTED if name not in unusual]
    outer = product(
        of("tp", wide), of("pp", deep), of("cp", long), of("ep", experts), of("microbatch", MICROBATCHES),
        of("sp", (True,)), of("recompute", recomputed),
    )  # fmt: skip
    for tp, pp, cp, ep, microbatch, sp, recompute in outer:
        inner = _size(tp, pp, cp)
        if not inner or job.gpus % inner:
            continue
        dp = job.gpus // inner
        if fixed.get("dp", dp) != dp:
            continue
        for schedule, chunks in _orders(job, pp, fixed):
            first = Split(dp, tp, pp, cp, ep, sp, 1, schedule, chunks, microbatch, recompute)
            if next(problems(job, first), None) is not None:
                continue
            if "pp" not in fixed and cells(job, first) > MAX_CELLS:
                continue
            for zero, offload in product(of("zero", (0, 1, 2, 3)), of("offload", OFFLOADED[:1])):
                split = replace(first, zero=zero, offload=offload)
                if ("zero" not in fixed and zero and dp * cp == 1) or next(problems(job, split), None) is not None:
                    continue
                yield split


def cells(job: Job, split: Split) -> int:
    """What the ranks of a pipeline compute in a step, in cells of its timetable."""
    return split.batches(job) * split.stages * (3 if split.schedule.startswith("zb") else 2)


def _size(*axes: Any) -> int:
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
    units, mine, alone = priced.units, priced.units * v, priced.replicas == 1
    forward = units * priced.forward
    backward = units * (priced.back_input + priced.back_weight) + (forward if split.recompute == "full" else 0)
    ramp = (p - 1) * (forward + priced.message)
    ramp += 0 if split.schedule.startswith("zb") else (p - 1) * (backward + priced.message)
    last = priced.update if alone else priced.update + priced.reduce + (priced.gather if split.zero in (1, 2) else 0)
    head = m * priced.loss
    if split.schedule == "zb_v":  # the head is on the first rank, which does not wait
        head, ramp = 0, max(head, ramp)
    compute = m * v * (forward + backward) + head + ramp + max(last, mine * priced.update)
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


# --- Refusals ---


def refuse_all(job: Job, fixed: Mapping[str, Any]) -> None:
    """Says why no split divides.

    Raises:
        RuleError: always.
    """
    inner = _size(*(fixed.get(axis, 1) for axis in ("tp", "pp", "cp")))
    schedule = {"chunks": 2} if fixed.get("schedule") in (*CHUNKED, "zb_v") else {}
    require_fit(job, Split(**{"dp": max(1, job.gpus // inner) if inner else 1, **schedule, **fixed}))
    chosen = ", ".join(f"{name} {value}" for name, value in fixed.items()) or "any split"
    raise RuleError(
        f"{job.batch} sequences on {job.gpus} GPUs cannot be split with {chosen}; "
        f"choose a batch with more divisors, such as {job.gpus}, or leave something to the search"
    )


def nothing_fits(job: Job, fixed: Mapping[str, Any], bounds: list[Bound]) -> str:
    """One sentence: the least memory that any split takes, what would save most, and on how many GPUs one fits."""
    split, peak = smallest(job, bounds)
    least = f"no split of {job.model.name} on {job.gpus} GPUs fits the {job.gpu.usable / GIB:.1f} GiB of {job.gpu.name}"
    more = f"the least found is {peak / GIB:.1f} GiB ({split}, recompute {split.recompute}, offload {split.offload})"
    advice = f"{memory_advice(job, split)}; " if fixed else ""
    for factor in (2, 4, 8, 16, 32):
        larger = replace(job, gpus=factor * job.gpus, batch=max(job.batch, factor * job.gpus))
        kept = {name: value for name, value in fixed.items() if name != "dp"}
        found = [lower_bound(larger, split) for split in splits(larger, kept)]
        if found and smallest(larger, found)[1] <= job.gpu.usable:
            return f"{least}; {more}; {advice}{larger.gpus} GPUs fit, with {larger.batch} sequences"
    return f"{least}; {more}; {advice}leave more of the split to the search, or take GPUs with that much"


def smallest(job: Job, bounds: list[Bound]) -> tuple[Split, int]:
    """The split that takes least memory, of the TRIED that may take least."""
    found: tuple[int, Split] | None = None
    for bound in sorted(bounds, key=lambda bound: (bound.bytes, cells(job, bound.split)))[:SPLITS_TRIED]:
        if found is not None and bound.bytes >= found[0]:
            break
        peak = estimated(job, bound.split).peak
        if found is None or peak < found[0]:
            found = peak, bound.split
    assert found is not None
    return found[1], found[0]

"""Finds the best splits of a job: all that divide, ranked by estimates.

A split is estimated only while its lower bounds on time and memory leave it a chance, so nothing better is lost. What
is not tried is left out for a reason that stands beside it: schedules that another always beats, pipelines whose
timetable would take seconds, and cuts of a sequence that is short. A caller who fixes a field gets it, even if it is
one of these. Where nothing divides or fits, the error says what would: a changed split, another number of GPUs.

Also changes of one choice of a split: the one that makes a step fastest, and those that save the most memory.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count, product
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.errors import RuleError, Sentences
from lib.ledger.algebra import counted
from lib.ledger.trace import no_collection

from .estimate import estimate, memory_range
from .job import GIB, MAX_LAYERS, MAX_NUMBER, MAX_TRIED, Job
from .plans import Family, Plan, family_of, plan
from .prices import TICKS, Prices, SplitSizes, members_of_replicas, prices, sizes
from .split import CHUNKED, OFFLOADED, RECOMPUTED, Split, divisors, problems, require_fit

# --- Every split that is tried, with lower bounds on time and memory ---

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
        for chunk_count in (fixed["chunks"],) if "chunks" in fixed else chunks:
            yield schedule, chunk_count


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


def _least_bytes(job: Job, split: Split, priced: SplitSizes, rank: int, of_rank: int) -> float:
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


# --- Changes of one choice: the change that makes a step fastest, and those that save the most memory ---

FACTORS = (2, 4, 8)
"""Factors by which ranks move from one axis to another."""

AXES = ("dp", "tp", "pp", "cp")


class Faster(NamedTuple):
    """A faster split that fits, how it differs, and the seconds of its step."""

    split: Split
    what: str
    seconds: float


def fastest_change(job: Job, split: Split, fixed: Mapping[str, Any] = MappingProxyType({})) -> Faster | None:
    """The change that makes a step fastest, among changes that fit and keep the `fixed` fields; None if no change
    helps."""
    ticks, faster = estimate(job, split).ticks, None
    bounds = {
        what: lower_bound(job, other)
        for what, other in _faster(job, split)
        if next(problems(job, other), None) is None
        and cells(job, other) <= MAX_CELLS
        and all(getattr(other, name) == given for name, given in fixed.items())
    }
    for what, bound in sorted(bounds.items(), key=lambda change: change[1].ticks):
        if bound.ticks >= ticks:
            break
        if bound.bytes > job.gpu.usable:
            continue
        after = estimate(job, bound.split)
        if after.ticks < ticks and after.peak <= job.gpu.usable:
            ticks, faster = after.ticks, Faster(bound.split, what, after.ticks / TICKS)
    return faster


def _faster(job: Job, split: Split) -> Iterator[tuple[str, Split]]:
    for recompute in ("none", "full"):
        if recompute != split.recompute:
            yield f"recompute {recompute}", replace(split, recompute=recompute, every=1)
    for zero in range(4):
        if zero != split.zero:
            yield f"ZeRO {zero}", replace(split, zero=zero, shards=split.shards if zero else 0)
    for microbatch in MICROBATCHES:
        if microbatch != split.microbatch:
            yield f"microbatch {microbatch}", replace(split, microbatch=microbatch)
    for schedule in ("1f1b", "zb_h1", "zb_v"):
        if schedule != split.schedule:
            yield schedule, replace(split, schedule=schedule, chunks=2 if schedule == "zb_v" else 1)
    for chunks in range(2, MAX_CHUNKS + 1):
        if (split.schedule, split.chunks) != (CHUNKED[0], chunks):
            yield f"{CHUNKED[0]} x{chunks}", replace(split, schedule=CHUNKED[0], chunks=chunks)
    for ep in divisors(job.model.experts or 1):
        if ep != split.ep:
            yield f"ep {ep}", replace(split, ep=ep)
    for factor in FACTORS:
        for less in AXES:
            if getattr(split, less) % factor == 0:
                yield from _moved(job, split, less, factor)


def _moved(job: Job, split: Split, less: str, factor: int) -> Iterator[tuple[str, Split]]:
    """Moves ranks from one axis to another."""
    for more in AXES:
        axes = {less: getattr(split, less) // factor, more: factor * getattr(split, more)}
        if more != less and (more != "cp" or job.sequence > LONG):
            other = replace(split, **axes, layers=())
            if other.pp == 1 and other.chunks > 1:
                other = replace(other, schedule="1f1b", chunks=1)
            yield f"{more} {axes[more]} and {less} {axes[less]}", other


LARGEST = ("batch", "sequence", "model")
"""What can be enlarged: the microbatch and with it the batch; the tokens of a sequence; the layers of the model."""

SEQUENCE_STEP = 1024
"""Tokens by which a sequence grows, for each context parallel rank."""


class Larger(NamedTuple):
    """A larger job and its split, with the memory of its fullest GPU in fused and in eager code."""

    job: Job
    split: Split
    low: int
    high: int


class Change(NamedTuple):
    """A split that takes less memory, how it differs, the bytes that it saves, and the seconds that its step takes
    longer."""

    split: Split
    what: str
    saved: int
    slower: float


def largest(job: Job, split: Split, what: str) -> tuple[Larger, Larger]:
    """The largest job that fits in eager code, and the largest that fits in fused code.

    `what` is one of LARGEST. The number of microbatches stays the same, so a larger batch has larger microbatches.
    """
    if what not in LARGEST:
        raise RuleError(SAYS("largest of what", known=", ".join(LARGEST), got=what))
    scaled, most = _scaled(job, split, what)
    ends: list[Larger] = []
    for end in (1, 0):  # the eager end of the range, and the fused one

        def too_large(size: int, end: int = end) -> bool:
            return memory_range(*scaled(size))[end] > job.gpu.usable

        high = next(2**k for k in count() if 2**k > most or too_large(2**k))
        low = bisect_left(range(high), True, high // 2 + 1, min(high, most + 1), key=too_large) - 1
        if not low:
            code = ("fused", "eager")[end]
            small, _ = scaled(1)
            fits = f"not even the smallest {what} fits {job.gpu.name} in {code} code with {split}"
            raise RuleError(f"{fits}; {memory_advice(small, split)}")
        larger = scaled(low)
        ends.append(Larger(*larger, *memory_range(*larger)))
    return ends[0], ends[1]


def _scaled(job: Job, split: Split, what: str) -> tuple[Callable[[int], tuple[Job, Split]], int]:
    """A function from a size to the job and split of that size, and the largest size."""
    batches, stages = split.batches(job), split.stages

    def batch(size: int) -> tuple[Job, Split]:
        larger = replace(split, microbatch=size)
        return replace(job, batch=split.dp * size * batches), larger

    def sequence(size: int) -> tuple[Job, Split]:
        return replace(job, sequence=SEQUENCE_STEP * split.cp * size), split

    def model(size: int) -> tuple[Job, Split]:
        layers = max(stages * size, job.model.dense_layers + 1)
        return replace(job, model=replace(job.model, layers=layers)), split

    return {
        "batch": (batch, MAX_TRIED // (split.dp * batches)),
        "sequence": (sequence, MAX_NUMBER // (SEQUENCE_STEP * split.cp)),
        "model": (model, MAX_LAYERS // stages),
    }[what]


def savings(job: Job, split: Split) -> list[Change]:
    """Changes of one choice that save memory, the most effective first."""
    before = estimate(job, split)
    changes = []
    for what, other in _smaller(job, split):
        if next(problems(job, other), None) is None:
            after = estimate(job, other)
            if after.peak < before.peak:
                changes.append(Change(other, what, before.peak - after.peak, (after.ticks - before.ticks) / 10**6))
    return sorted(changes, key=lambda change: (-change.saved, change.slower))


def _smaller(job: Job, split: Split) -> Iterator[tuple[str, Split]]:
    for name in ("selective", "ops", "full"):
        if name != split.recompute:
            yield f"recompute {name}", replace(split, recompute=name)
    for zero in range(split.zero + 1, 4):
        yield f"ZeRO {zero}", replace(split, zero=zero)
    if split.microbatch % 2 == 0:
        yield f"microbatch {split.microbatch // 2}", replace(split, microbatch=split.microbatch // 2)
    if split.offload == "none":
        yield "offload states", replace(split, offload="states")
    if split.dp % 2 == 0:
        for axis in ("tp", "pp", "cp"):
            count = 2 * getattr(split, axis)
            if axis != "tp" or count <= job.gpu.machine:
                yield f"{axis} {count} and dp {split.dp // 2}", replace(split, dp=split.dp // 2, **{axis: count})


def memory_advice(job: Job, split: Split, fixed: Mapping[str, Any] = MappingProxyType({})) -> str:
    """The two changes that save the most memory and keep the `fixed` fields, in words."""
    changes = [
        change for change in savings(job, split) if all(getattr(change.split, name) == fixed[name] for name in fixed)
    ]
    best = [f"{change.what} saves {change.saved / 2**30:.1f} GiB" for change in changes[:2]]
    return f"the changes that help most: {'; '.join(best)}" if best else "no single change of the split saves memory"


# --- The search ---

SPLITS_TRIED = 24
"""Splits that are estimated to say how little memory would do."""

NEAREST_GPUS = 64
"""How far from a number of GPUs another is looked for that can be split."""


def refuse_all(job: Job, fixed: Mapping[str, Any]) -> None:
    """Says why no split divides."""
    if isinstance(layers := fixed.get("layers"), tuple) and "chunks" not in fixed:
        fixed = {"pp": len(layers), **fixed}
    inner = size_of(*(fixed.get(axis, 1) for axis in ("tp", "pp", "cp")))
    schedule = {"chunks": 2} if fixed.get("schedule") in (*CHUNKED, "zb_v") else {}
    if fixed:
        require_fit(job, Split(**{"dp": max(1, job.gpus // inner) if inner else 1, **schedule, **fixed}))
    chosen = ", ".join(f"{name} {value}" for name, value in fixed.items()) or "any split"
    near = [str(gpus) for gpus in nearest_gpus(job, fixed)]
    work = f"; {' and '.join(near)} {'GPU works' if near == ['1'] else 'GPUs work'}" if near else ""
    raise RuleError(
        SAYS(
            "no split",
            batch=counted(job.batch, "sequence"),
            gpus=counted(job.gpus, "GPU"),
            chosen=chosen,
            work=work,
            job_gpus=job.gpus,
        )
    )


def nearest_gpus(job: Job, fixed: Mapping[str, Any]) -> Iterator[int]:
    """The next smaller and the next larger number of GPUs that can be split, if they are near."""
    kept = {name: value for name, value in fixed.items() if name != "dp"}
    for step in (-1, 1):
        for gpus in range(job.gpus + step, job.gpus + step * NEAREST_GPUS, step):
            if 0 < gpus <= MAX_TRIED and next(splits(replace(job, gpus=gpus), kept), None) is not None:
                yield gpus
                break


def nothing_fits(job: Job, fixed: Mapping[str, Any], tried: Sequence[Split]) -> str:
    """One sentence: the least memory that any split takes, what would save most, and on how many GPUs one fits."""
    split, peak = smallest(job, tried)
    room = f"the {job.gpu.usable / GIB:.1f} GiB of {job.gpu.name}"
    least = f"no split of {job.model.name} on {counted(job.gpus, 'GPU')} fits {room}"
    more = f"the least found is {peak / GIB:.1f} GiB ({split}, recompute {split.recompute}, offload {split.offload})"
    advice = f"{memory_advice(job, split)}; " if fixed else ""
    for factor in (2, 4, 8, 16, 32):
        larger = replace(job, gpus=factor * job.gpus, batch=max(job.batch, factor * job.gpus))
        kept = {name: value for name, value in fixed.items() if name != "dp"}
        larger_splits = [*splits(larger, kept)]
        if larger_splits and smallest(larger, larger_splits)[1] <= job.gpu.usable:
            return f"{least}; {more}; {advice}{larger.gpus} GPUs fit, with {larger.batch} sequences"
    return f"{least}; {more}; {advice}leave more of the split to the search, or take GPUs with that much"


def smallest(job: Job, tried: Sequence[Split]) -> tuple[Split, int]:
    """The split that takes least memory, of the SPLITS_TRIED that may take least."""
    bounds = [lower_bound(job, split) for split in tried]
    smaller: list[tuple[int, Split]] = []
    for bound in sorted(bounds, key=lambda b: (b.bytes, cells(job, b.split), b.ticks))[:SPLITS_TRIED]:
        if smaller and bound.bytes >= smaller[-1][0]:
            break
        peak = estimate(job, bound.split).peak
        if not smaller or peak < smaller[-1][0]:
            smaller.append((peak, bound.split))
    return smaller[-1][1], smaller[-1][0]


SLOWEST = 2
"""What takes so many times as long as the fastest split is neither in the front nor the best of its kind."""

NEARLY_AS_SMALL = 0.95
"""A split that can be at most so little smaller than a faster one is left out of the front."""


@dataclass(frozen=True)
class Search:
    """What a search has found: the fastest plans that fit, ascending by time, and the front: each is slower than the
    one before it, and smaller. `families` have the fastest of each kind of split. Front and families have nothing that
    takes more than twice as long as the fastest. `considered` splits divide the job, `fitting` of them may fit by their
    bounds, `estimated` were estimated."""

    job: Job
    best: tuple[Plan, ...]
    front: tuple[Plan, ...]
    families: tuple[Family, ...]
    considered: int
    fitting: int
    estimated: int


def search(job: Job, best: int = 3, front: int = 4, **fixed: Any) -> Search:
    """The fastest splits of a job that fit its GPUs' memory; `fixed` are fields of a Split that every one must have.
    States go to the host only if that is asked for, or if nothing fits otherwise.

    Raises:
        RuleError: no split divides, or none fits; the text says what would. Or `best` or `front` is no count.
    """
    for name in fixed:
        if name not in Split.__dataclass_fields__:
            raise RuleError(f"a split has no {name!r}; it has {', '.join(Split.__dataclass_fields__)}")
    for name, plans in (("best", best), ("front", front)):
        if type(plans) is not int or plans < 1:
            raise RuleError(SAYS("no count", name=name, got=plans))
    with no_collection():
        return _search(job, best, front, fixed)


def _search(job: Job, best: int, front: int, fixed: dict[str, Any]) -> Search:
    sizes = [(split, least_bytes(job, split)) for split in splits(job, fixed)]
    if not sizes:
        refuse_all(job, fixed)
    small = [(split, least) for split, least in sizes if least <= job.gpu.usable]
    fitting = sorted((Bound(least_ticks(job, split), least, split) for split, least in small), key=lambda b: b[:2])
    fastest: list[tuple[int, int, int]] = []
    smaller: list[tuple[int, int, int]] = []
    """Of what was estimated, the front: each is slower than the one before it, and smaller."""
    tried: list[Split] = []
    kinds: dict[str, tuple[int, int, int]] = {}
    """Of each family the fastest."""
    for bound in fitting:
        kind = family_of(bound.split)
        if len(fastest) >= best and bound.ticks > fastest[best - 1][0]:
            if bound.ticks > SLOWEST * fastest[0][0]:
                break
            dominated = any(t <= bound.ticks and NEARLY_AS_SMALL * peak <= bound.bytes for t, peak, _ in smaller)
            if dominated and kind in kinds and bound.ticks >= kinds[kind][0]:
                continue
        ticks, peak = estimate(job, bound.split)
        tried.append(bound.split)
        if peak > job.gpu.usable:
            continue
        candidate = (ticks, peak, len(tried) - 1)
        insort(fastest, candidate)
        kinds[kind] = min(kinds.get(kind, candidate), candidate)
        if not any(other[0] <= ticks and other[1] <= peak for other in smaller):
            smaller = sorted([other for other in smaller if other[0] < ticks or other[1] < peak] + [candidate])
    if not fastest and "offload" not in fixed:
        return _search(job, best, front, {**fixed, "offload": "states"})
    if not fastest:
        raise RuleError(nothing_fits(job, fixed, [split for split, _ in sizes]))
    slowest = SLOWEST * fastest[0][0]
    shown = _spread([candidate for candidate in smaller if candidate[0] <= slowest], front)
    plans = {k: plan(job, tried[k]) for _, _, k in sorted({*fastest[:best], *shown})}
    return Search(
        job,
        tuple(plans[k] for _, _, k in fastest[:best]),
        tuple(plans[k] for _, _, k in shown),
        tuple(
            Family(kind, tried[k], ticks / TICKS, peak)
            for kind, (ticks, peak, k) in sorted(kinds.items(), key=lambda family: family[1])
            if ticks <= slowest
        ),
        len(sizes),
        len(fitting),
        len(tried),
    )


def _spread(front: list[tuple[int, int, int]], count: int) -> list[tuple[int, int, int]]:
    """At most `count` of a front: the fastest, the smallest, and others that are far apart in memory."""
    if len(front) <= count:
        return front
    high, low = front[0][1], front[-1][1]
    wanted = [high - (high - low) * k / max(count - 1, 1) for k in range(count)]
    return sorted({min(front, key=lambda candidate: abs(candidate[1] - peak)) for peak in wanted})


SAYS = Sentences(
    {
        "largest of what": "the largest of what? There are {known}; got {got!r:.40}",
        "no split": "{batch} on {gpus} cannot be split with {chosen}{work}; or choose a batch with more divisors, such as {job_gpus}, or leave something to the search",
        "no count": "{name} is how many plans to find, a whole number from 1 on; got {got!r:.40}",
    }
)

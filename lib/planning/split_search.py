"""Finds the best splits of a job: all that divide, ranked by estimates.

A split is estimated only while its lower bounds on time and memory leave it a chance, so nothing better is lost.
"""

from bisect import insort
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lib.errors import RuleError
from lib.trace.ops import no_collection
from lib.values.algebra import counted

from .all_splits import Bound, cells, lower_bound, size_of, splits
from .changes import memory_advice
from .cost_model import TICKS
from .job import GIB, MAX_TRIED, Job
from .plans import Family, Plan, family_of, plan
from .split import CHUNKED, Split, require_fit
from .timing import estimate
from .words import SAYS

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


def nothing_fits(job: Job, fixed: Mapping[str, Any], bounds: list[Bound]) -> str:
    """One sentence: the least memory that any split takes, what would save most, and on how many GPUs one fits."""
    split, peak = smallest(job, bounds)
    room = f"the {job.gpu.usable / GIB:.1f} GiB of {job.gpu.name}"
    least = f"no split of {job.model.name} on {counted(job.gpus, 'GPU')} fits {room}"
    more = f"the least found is {peak / GIB:.1f} GiB ({split}, recompute {split.recompute}, offload {split.offload})"
    advice = f"{memory_advice(job, split)}; " if fixed else ""
    for factor in (2, 4, 8, 16, 32):
        larger = replace(job, gpus=factor * job.gpus, batch=max(job.batch, factor * job.gpus))
        kept = {name: value for name, value in fixed.items() if name != "dp"}
        larger_bounds = [lower_bound(larger, split) for split in splits(larger, kept)]
        if larger_bounds and smallest(larger, larger_bounds)[1] <= job.gpu.usable:
            return f"{least}; {more}; {advice}{larger.gpus} GPUs fit, with {larger.batch} sequences"
    return f"{least}; {more}; {advice}leave more of the split to the search, or take GPUs with that much"


def smallest(job: Job, bounds: list[Bound]) -> tuple[Split, int]:
    """The split that takes least memory, of the TRIED that may take least."""
    smaller: list[tuple[int, Split]] = []
    for bound in sorted(bounds, key=lambda bound: (bound.bytes, cells(job, bound.split)))[:SPLITS_TRIED]:
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
    for name, count in (("best", best), ("front", front)):
        if type(count) is not int or count < 1:
            raise RuleError(SAYS("no count", name=name, got=count))
    with no_collection():
        return _search(job, best, front, fixed)


def _search(job: Job, best: int, front: int, fixed: dict[str, Any]) -> Search:
    bounds = sorted((lower_bound(job, split) for split in splits(job, fixed)), key=lambda bound: bound[:2])
    if not bounds:
        refuse_all(job, fixed)
    fitting = [bound for bound in bounds if bound.bytes <= job.gpu.usable]
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
        raise RuleError(nothing_fits(job, fixed, bounds))
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
    return sorted({min(front, key=lambda candidate: abs(candidate[1] - peak)) for peak in wanted})

"""Finds the best splits of a job: all that divide, ranked by estimates, and the best of them played in the ledger.

A split is estimated only while its lower bounds on time and memory leave it a chance, so nothing better is lost.
"""

from bisect import insort
from dataclasses import dataclass
from typing import Unpack

from lib.errors import RuleError
from lib.trace.gc_pause import no_collection

from .all_splits import lower_bound, splits
from .cost_model import TICKS
from .families import Family, family_of
from .fields import SplitFields
from .job import Job
from .plans import Plan, plan
from .refusals import nothing_fits, refuse_all
from .split import Split
from .steady import estimated

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


def search(job: Job, best: int = 3, front: int = 4, **fixed: Unpack[SplitFields]) -> Search:
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
    with no_collection():
        return _search(job, best, front, fixed)


def _search(job: Job, best: int, front: int, fixed: SplitFields) -> Search:
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
        ticks, peak = estimated(job, bound.split)
        tried.append(bound.split)
        if peak > job.gpu.usable:
            continue
        found = (ticks, peak, len(tried) - 1)
        insort(fastest, found)
        kinds[kind] = min(kinds.get(kind, found), found)
        if not any(other[0] <= ticks and other[1] <= peak for other in smaller):
            smaller = sorted([one for one in smaller if one[0] < ticks or one[1] < peak] + [found])
    if not fastest and "offload" not in fixed:
        on_host: SplitFields = {**fixed, "offload": "states"}
        return _search(job, best, front, on_host)
    if not fastest:
        raise RuleError(nothing_fits(job, fixed, bounds))
    slowest = SLOWEST * fastest[0][0]
    shown = _spread([one for one in smaller if one[0] <= slowest], front)
    plans = {k: plan(job, tried[k]) for _, _, k in sorted({*fastest[:best], *shown})}
    return Search(
        job,
        tuple(plans[k] for _, _, k in fastest[:best]),
        tuple(plans[k] for _, _, k in shown),
        tuple(
            Family(kind, tried[k], ticks / TICKS, peak)
            for kind, (ticks, peak, k) in sorted(kinds.items(), key=lambda one: one[1])
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
    return sorted({min(front, key=lambda one: abs(one[1] - at)) for at in wanted})

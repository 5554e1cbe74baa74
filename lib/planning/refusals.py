"""Why a job has no split, and what would work instead."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from lib.errors import RuleError

from .all_splits import Bound, cells, lower_bound, size_of, splits
from .job import GIB, MAX_TRIED, Job
from .largest import memory_advice
from .split import CHUNKED, Split, require_fit
from .steady import estimated

SPLITS_TRIED = 24
"""Splits that are estimated to say how little memory would do."""

NEAREST_GPUS = 64
"""How far from a number of GPUs another is looked for that can be split."""


def refuse_all(job: Job, fixed: Mapping[str, Any]) -> None:
    """Says why no split divides.

    Raises:
        RuleError: always.
    """
    if isinstance(layers := fixed.get("layers"), tuple) and "chunks" not in fixed:
        fixed = {"pp": len(layers), **fixed}
    inner = size_of(*(fixed.get(axis, 1) for axis in ("tp", "pp", "cp")))
    schedule = {"chunks": 2} if fixed.get("schedule") in (*CHUNKED, "zb_v") else {}
    if fixed:
        require_fit(job, Split(**{"dp": max(1, job.gpus // inner) if inner else 1, **schedule, **fixed}))
    chosen = ", ".join(f"{name} {value}" for name, value in fixed.items()) or "any split"
    near = [str(gpus) for gpus in nearest_gpus(job, fixed)]
    work = f"; {' and '.join(near)} GPUs work" if near else ""
    raise RuleError(
        f"{job.batch} sequences on {job.gpus} GPUs cannot be split with {chosen}{work}; "
        f"or choose a batch with more divisors, such as {job.gpus}, or leave something to the search"
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

"""The change of one choice of a split that makes a step fastest."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple

from .all_splits import LONG, MAX_CELLS, MAX_CHUNKS, MICROBATCHES, cells, lower_bound
from .cost_model import TICKS
from .job import Job
from .split import CHUNKED, Split, divisors, problems
from .timing import estimated

FACTORS = (2, 4, 8)
"""By which ranks are moved from one axis to another."""

AXES = ("dp", "tp", "pp", "cp")


class Faster(NamedTuple):
    """A split that takes less time and fits, what differs, and the seconds of its step."""

    split: Split
    what: str
    seconds: float


def fastest_change(job: Job, split: Split, fixed: Mapping[str, Any] = MappingProxyType({})) -> Faster | None:
    """The change that makes a step of a split fastest, of those that fit and leave some fields as they are `fixed`;
    None if each takes longer."""
    ticks, found = estimated(job, split).ticks, None
    bounds = {
        what: lower_bound(job, other)
        for what, other in _changes(job, split)
        if next(problems(job, other), None) is None
        and cells(job, other) <= MAX_CELLS
        and all(getattr(other, name) == given for name, given in fixed.items())
    }
    for what, bound in sorted(bounds.items(), key=lambda one: one[1].ticks):
        if bound.ticks >= ticks:
            break
        if bound.bytes > job.gpu.usable:
            continue
        after = estimated(job, bound.split)
        if after.ticks < ticks and after.peak <= job.gpu.usable:
            ticks, found = after.ticks, Faster(bound.split, what, after.ticks / TICKS)
    return found


def _changes(job: Job, split: Split) -> Iterator[tuple[str, Split]]:
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
    """Ranks of one axis go to another."""
    for more in AXES:
        axes = {less: getattr(split, less) // factor, more: factor * getattr(split, more)}
        if more != less and (more != "cp" or job.sequence > LONG):
            other = replace(split, **axes, layers=())
            if other.pp == 1 and other.chunks > 1:
                other = replace(other, schedule="1f1b", chunks=1)
            yield f"{more} {axes[more]} and {less} {axes[less]}", other

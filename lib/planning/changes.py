"""Changes of one choice of a split: the change that makes a step fastest, and those that save the most memory."""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.errors import RuleError

from .all_splits import LONG, MAX_CELLS, MAX_CHUNKS, MICROBATCHES, cells, lower_bound
from .cost_model import TICKS
from .job import MAX_NUMBER, MAX_TRIED, Job
from .split import CHUNKED, Split, divisors, problems
from .timing import estimate, memory_range
from .transformers import MAX_LAYERS
from .words import SAYS

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

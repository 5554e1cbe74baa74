"""The estimate of a split with many microbatches, from estimates with few: a full pipeline repeats itself."""

from .job import Job
from .memory_model import with_holes
from .plans import program_of
from .split import Split
from .timing import Estimate, estimate


def estimated(job: Job, split: Split, eager: bool = False) -> Estimate:
    """The estimate of a split. With many microbatches it is continued from fewer: once a pipeline is full, each p more
    take as long as the p before them, and hold no more. That is not so where all forwards come first, where gathers
    of weights are beside a pipeline, where the input half of a backward takes longer for what it computes again, and
    where stages are of different sizes."""
    m, p = split.batches(job), split.pp
    full = (4 if split.chunks > 1 else 2) * max(p, 2) + m % p
    halves = split.schedule.startswith("zb") and (split.recompute == "ops" or split.every > 1)
    steady = split.schedule not in ("gpipe", "breadth_first") and (split.zero < 3 or p == 1) and not halves
    uneven = len(set(split.stage_layers(job))) > 1  # while the largest stage fills the others' queues, steps differ
    if m <= full + p or not steady or uneven:
        return estimate(job, split, program_of(job, split), eager)
    few, more = (estimate(job, split, program_of(job, split, n), eager) for n in (full, full + p))
    times = (m - full) // p
    return Estimate(*(a + (b - a) * times for a, b in zip(few, more)))


def memory_range(job: Job, split: Split) -> tuple[int, int]:
    """Bytes of the fullest GPU: in fused code, and the most that eager code reserves."""
    low = estimated(job, split).peak
    return low, max(low, with_holes(job, split, estimated(job, split, eager=True).peak))

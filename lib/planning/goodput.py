"""The share of time that trains where GPUs fail: how often to write a checkpoint, and how long a training takes."""

from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple

from lib.errors import RuleError

from .job import Job

HOUR, DAY = 3600.0, 86400.0


class Goodput(NamedTuple):
    """Seconds between the failures of the cluster, of a checkpoint, and between checkpoints; and the share of time that
    trains."""

    between_failures: float
    checkpoint: float
    interval: float
    share: float


def checkpoint_bytes(job: Job) -> int:
    """Bytes of a checkpoint: all weights and the optimizer's states."""
    return job.model.weights * (job.weight + job.state)


def goodput(job: Job, mtbf_hours: float, bandwidth: float, restart: float = 300.0) -> Goodput:
    """How a training goes on where each GPU fails once in `mtbf_hours` on average.

    A checkpoint is written with `bandwidth` bytes per second of the whole cluster, while training waits. After a
    failure `restart` seconds pass, and what was trained since the last checkpoint is lost. The interval is from Daly
    2006, which refines Young 1974, sqrt(2 C M); the share follows from Daly's model, where failures are exponential.
    """
    for name, number, least in (("mtbf", mtbf_hours, 0), ("bandwidth", bandwidth, 0), ("restart", restart, -1)):
        if type(number) not in (int, float) or not (isfinite(number) and number > least):
            raise RuleError(f"{name} must be a number more than {max(least, 0)}; got {number!r:.40}")
    mean = mtbf_hours * HOUR / job.gpus
    written = checkpoint_bytes(job) / bandwidth
    if written >= 2 * mean or restart >= 100 * mean:
        raise RuleError(
            f"{job.gpus:,} GPUs fail every {mean:.3g} s, a checkpoint takes {written:.3g} s, and a restart "
            f"{restart:.3g} s: nothing is ever trained. Take a higher bandwidth, or fewer GPUs"
        )
    ratio = written / (2 * mean)
    interval = sqrt(2 * written * mean) * (1 + sqrt(ratio) / 3 + ratio / 9) - written
    share = interval / (mean * expm1((interval + written) / mean)) if interval else 1.0
    return Goodput(mean, written, interval, share * exp(-restart / mean))


def training_seconds(job: Job, seconds: float, tokens: float, share: float = 1.0) -> float:
    """Seconds to train so many tokens with steps of so many seconds, of which a share counts."""
    return tokens / job.tokens * seconds / share

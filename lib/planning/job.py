"""What to plan: a model, GPUs, the sequences of a step and the widths of numbers; and the goodput of a training."""

from dataclasses import dataclass
from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple

from lib.errors import RuleError

from .gpus import Gpu
from .transformers import Transformer

GIB = 2**30

KERNELS = ("megatron", "pytorch")
"""The kernels differ in the rate of flash attention, and in what they keep in memory."""

MAX_NUMBER, MAX_TRIED = 10**9, 2**20
"""The largest number in a job; for GPUs and sequences it is smaller, because their divisors are tried and played."""


@dataclass(frozen=True)
class Job:
    """A step trains `model` on `gpus` GPUs with `batch` sequences of `sequence` tokens.

    `kernels`: Megatron's or PyTorch's. `flash`: attention never stores the matrix of all pairs, and computes its causal
    half (Dao et al. 2022). `fp8`: layers compute matrix products in 8 bits. `overlap`: gradients are reduced during
    computation. Bytes of each parameter: `weight` and `gradient` as they are kept, and the optimizer's `state` (Adam:
    two moments and a 32-bit weight).
    """

    model: Transformer
    gpu: Gpu
    gpus: int
    batch: int
    sequence: int = 0
    kernels: str = "megatron"
    flash: bool = True
    fp8: bool = False
    overlap: bool = True
    weight: int = 2
    gradient: int = 4
    state: int = 12

    def __post_init__(self) -> None:
        for name, kind in (("model", Transformer), ("gpu", Gpu), ("flash", bool), ("fp8", bool), ("overlap", bool)):
            if not isinstance(getattr(self, name), kind):
                raise RuleError(f"{name} must be a {kind.__name__}; got {getattr(self, name)!r:.40}")
        if self.kernels not in KERNELS:
            raise RuleError(f"there are no kernels {self.kernels!r:.40}; there are {', '.join(KERNELS)}")
        object.__setattr__(self, "sequence", self.sequence or self.model.sequence)
        for name in ("gpus", "batch", "sequence", "weight", "gradient", "state"):
            number = getattr(self, name)
            most = MAX_TRIED if name in ("gpus", "batch") else MAX_NUMBER
            if type(number) is not int or not 1 <= number <= most:
                raise RuleError(f"{name} must be a whole number from 1 to {most:,}; got {number!r:.40}")
        if self.fp8 and not self.gpu.flops8:
            raise RuleError(f"{self.gpu.name} has no matrix products in 8 bits; leave out fp8, or set gpu.flops8")

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def core_rate(self) -> float:
        """Flops per second that the core of attention reaches; without flash it consists of plain matrix products."""
        gpu = self.gpu
        share = {"megatron": gpu.core_megatron, "pytorch": gpu.core_pytorch}[self.kernels]
        return gpu.flops * (share if self.flash else gpu.efficiency)

    @property
    def flops(self) -> float:
        """Flops of a step that the model needs, without recomputation."""
        return self.tokens * self.model.model_flops(self.sequence, self.flash)

    def mfu(self, seconds: float) -> float:
        """Model flops utilization (Chowdhery et al. 2022, PaLM, appendix B): the share of the peak of all GPUs that a
        step of `seconds` uses. The peak is that of 16 bits, or with fp8 of 8 bits."""
        peak = self.gpu.flops8 if self.fp8 else self.gpu.flops
        return self.flops / (seconds * self.gpus * peak)


HOUR, DAY = 3600.0, 86400.0


class Goodput(NamedTuple):
    """Seconds between failures of the cluster, seconds of a checkpoint, seconds between checkpoints, and the share of
    time spent training."""

    between_failures: float
    checkpoint: float
    interval: float
    share: float


def checkpoint_bytes(job: Job) -> int:
    """Bytes of a checkpoint: all weights and the optimizer's states."""
    return job.model.weights * (job.weight + job.state)


def goodput(job: Job, mtbf_hours: float, bandwidth: float, restart: float = 300.0) -> Goodput:
    """The share of time that a cluster trains if each GPU fails once in `mtbf_hours` on average.

    The cluster writes checkpoints with `bandwidth` bytes per second in all, while training waits. After a failure
    `restart` seconds pass, and the training since the last checkpoint is lost. The interval is from Daly 2006, which
    refines Young 1974, sqrt(2 C M). The share follows from Daly's model, where failures are exponential.
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
    """Seconds to train `tokens` tokens with steps of `seconds`, if a `share` of the time is spent training."""
    return tokens / job.tokens * seconds / share

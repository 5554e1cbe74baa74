"""What to plan: a model, GPUs, the sequences of a step and the widths of numbers; and the goodput of a training."""

from dataclasses import dataclass
from math import exp, expm1, isfinite, sqrt
from typing import NamedTuple

from lib.errors import RuleError

from .gpus import Gpu
from .transformers import Transformer
from .words import SAYS

GIB = 2**30

OPTIMIZERS = ("adam", "muon")
"""Muon has one moment, and updates full matrices of the layers with five Newton-Schulz iterations."""

KERNELS = ("megatron", "pytorch")
"""The kernels differ in the rate of flash attention, and in what they keep in memory."""

DISPATCHERS = ("alltoall", "dedup")
"""How tokens are sent to their experts: a copy for each of a token's experts; or one for each machine, and within it
one for each rank (DeepEP, HybridEP)."""

GRAPHS = ("none", "partial", "full")
"""What CUDA graphs launch: nothing; attention and the router; the step, in which experts are fused."""

MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "moe_act", "shared_experts")
"""Parts of a layer that backward may compute again, by Megatron's names."""

MAX_NUMBER, MAX_TRIED, MAX_MTP = 10**9, 2**20, 8
"""The largest number in a job; for GPUs and sequences it is smaller, because their divisors are tried and played."""


@dataclass(frozen=True)
class Job:
    """A step trains `model` on `gpus` GPUs with `batch` sequences of `sequence` tokens.

    `kernels`: Megatron's or PyTorch's. `flash`: attention never stores the matrix of all pairs, and computes its causal
    half (Dao et al. 2022). `fp8`: layers compute matrix products in 8 bits. `overlap`: gradients are reduced during
    computation. Bytes of each parameter: `weight` and `gradient` as they are kept, and the optimizer's `state` (Adam:
    two moments and a 32-bit weight; 8 with moments in 16 bits), of which Muon leaves out a moment. `loss_chunks`: parts
    in which the loss is computed. `modules`: parts of a layer that backward computes again, see MODULES. `mtp`: heads
    for multi-token prediction in addition to the usual one; the layer of each is among the model's.

    For models with experts: `dispatch` and `graphs`, see DISPATCHERS and GRAPHS. `ep_overlap`: the experts' all-to-alls
    overlap with the computation of another microbatch. The fullest rank has `imbalance` times the mean number of rows,
    unless routing is forced to be `balanced`, as in benchmarks. `consecutive`: a benchmark sends each token to
    neighboring experts.
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
    optimizer: str = "adam"
    loss_chunks: int = 1
    modules: tuple[str, ...] = ()
    mtp: int = 0
    dispatch: str = "alltoall"
    graphs: str = "none"
    ep_overlap: bool = False
    balanced: bool = False
    imbalance: float = 1.5
    consecutive: bool = False

    def __post_init__(self) -> None:
        switches = dict.fromkeys(("flash", "fp8", "overlap", "ep_overlap", "balanced", "consecutive"), bool)
        for name, kind in {"model": Transformer, "gpu": Gpu, **switches}.items():
            if not isinstance(getattr(self, name), kind):
                raise RuleError(f"{name} must be a {kind.__name__}; got {getattr(self, name)!r:.40}")
        if self.kernels not in KERNELS:
            raise RuleError(SAYS("no such kernels", got=self.kernels, known=", ".join(KERNELS)))
        object.__setattr__(self, "sequence", self.sequence or self.model.sequence)
        object.__setattr__(self, "dispatch", self.dispatch or DISPATCHERS[0])
        object.__setattr__(self, "modules", tuple(self.modules) if isinstance(self.modules, list) else self.modules)
        for name in ("gpus", "batch", "sequence", "weight", "gradient", "state", "loss_chunks", "mtp"):
            number, least = getattr(self, name), 0 if name == "mtp" else 1
            most = {"gpus": MAX_TRIED, "batch": MAX_TRIED, "mtp": MAX_MTP}.get(name, MAX_NUMBER)
            if type(number) is not int or not least <= number <= most:
                raise RuleError(f"{name} must be a whole number from {least} to {most:,}; got {number!r:.40}")
        for name, known in (("optimizer", OPTIMIZERS), ("dispatch", DISPATCHERS), ("graphs", GRAPHS)):
            if getattr(self, name) not in known:
                raise RuleError(SAYS("none of these", name=name, known=", ".join(known), got=getattr(self, name)))
        if type(self.modules) is not tuple or not all(module in MODULES for module in self.modules):
            raise RuleError(f"modules are some of {', '.join(MODULES)}; got {self.modules!r:.60}")
        if type(self.imbalance) not in (int, float) or not 1 <= self.imbalance <= MAX_NUMBER:
            raise RuleError(f"imbalance is a multiple of the mean, at least 1; got {self.imbalance!r:.40}")
        if self.fp8 and not self.gpu.flops8:
            raise RuleError(f"{self.gpu.name} has no matrix products in 8 bits; leave out fp8, or set gpu.flops8")

    @property
    def tokens(self) -> int:
        """Tokens of a step."""
        return self.batch * self.sequence

    @property
    def by_kernel(self) -> bool:
        """Whether each kind of kernel has its own rate: for PyTorch on one GPU, if these rates are measured."""
        return self.kernels == "pytorch" and self.gpus == 1 and self.gpu.efficiency_alone > 0

    @property
    def efficiency(self) -> float:
        """The share of the peak rate that matrix products reach."""
        return self.gpu.efficiency_alone if self.by_kernel else self.gpu.efficiency

    @property
    def layer_state(self) -> int:
        """Bytes of the optimizer's state of a parameter in the layers; ends and norms are updated by Adam."""
        return self.state if self.optimizer == "adam" else 4 + max(self.state - 4, 0) // 2

    @property
    def core_rate(self) -> float:
        """Flops per second that the core of attention reaches; without flash it consists of plain matrix products."""
        gpu = self.gpu
        share = {"megatron": gpu.core_megatron, "pytorch": gpu.core_pytorch}[self.kernels]
        if self.by_kernel and gpu.core_alone:
            share = gpu.core_alone
        return gpu.flops * (share if self.flash else self.efficiency)

    @property
    def flops(self) -> float:
        """Flops of a step that the model needs, without recomputation."""
        of_mtp = 6 * self.mtp * self.model.vocabulary_weights
        return self.tokens * (self.model.model_flops(self.sequence, self.flash) + of_mtp)

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
    layers = job.model.dense_weights + job.model.routed_weights
    return job.model.weights * (job.weight + job.state) - layers * (job.state - job.layer_state)


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

"""A GPU and its links: rates from data sheets, and the share of them that programs reach."""

from __future__ import annotations

from dataclasses import dataclass, fields

from lib.errors import RuleError

from .words import SAYS

REACHED = 0.8
"""The share of a link's rate that collectives and copies reach (bus bandwidth of nccl-tests over the data sheet's)."""

LATENCY = {"nvlink": 10e-6, "network": 25e-6, "host": 10e-6}
"""Seconds of each call, in addition to its bytes."""

HOP = {"nvlink": 2.4e-6, "network": 12e-6}
"""Seconds of each further rank of a collective: a ring of n ranks has n - 1 steps."""

CONTENTION = 0.35
"""Communication that overlaps with computation: both together take the longer time, plus this share of the shorter."""

MEMORY_REACHED = 0.76
"""The share of the memory's rate that kernels reach which read and write each number once: the optimizer's step, casts
and element-wise operations (measured on an H100, docs/truth.md)."""

LINKS = tuple(LATENCY)


def call_seconds(link: str, ranks: int) -> float:
    """Seconds of a collective of `ranks` ranks, in addition to its bytes."""
    return LATENCY[link] + (ranks - 1) * HOP[link]


@dataclass(frozen=True)
class Gpu:
    """One GPU. Rates are per second: `flops` in 16 bits, `flops8` in 8 bits, `bandwidth` of its memory, and each link
    in one direction; `memory` is in bytes. A machine has `machine` GPUs, joined by NVLink. `efficiency` is the share of
    `flops` that matrix products reach; `core_megatron` and `core_pytorch` are the shares that the core of flash
    attention reaches with these kernels. These rates are fitted to runs of many GPUs, so they contain what such runs
    lose besides. `efficiency_alone` and `core_alone` are the shares that PyTorch's kernels reach on one GPU (0: not
    measured). `context` is the memory that CUDA and NCCL take, in bytes."""

    name: str
    flops: float
    flops8: float
    memory: int
    bandwidth: float
    nvlink: float
    network: float
    host: float
    machine: int
    efficiency: float
    core_megatron: float
    core_pytorch: float
    context: int = 2 * 2**30
    efficiency_alone: float = 0.0
    core_alone: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        for field in fields(self):
            number = getattr(self, field.name)
            least = 0 if field.name in MAY_BE_ZERO else MIN_NUMBER
            if field.type in ("int", "float") and not (type(number) in (int, float) and least <= number <= MAX_NUMBER):
                raise RuleError(f"gpu.{field.name} must be more than 0, and at most {MAX_NUMBER:g}; got {number!r:.40}")
        for name in SHARES:
            if getattr(self, name) > 1:
                raise RuleError(SAYS("share above 1", name=name, got=getattr(self, name)))
        if not isinstance(self.machine, int):
            raise RuleError(f"gpu.machine is a whole number of GPUs; got {self.machine!r}")

    @property
    def bytes_per_second(self) -> float:
        """Bytes per second that element-wise kernels read and write."""
        return self.bandwidth * MEMORY_REACHED

    @property
    def usable(self) -> int:
        """Bytes of memory for training."""
        return max(0, int(self.memory) - int(self.context))

    def members(self, stride: int, count: int) -> int:
        """How many of `count` GPUs, each `stride` after the one before, share a machine."""
        return max(1, min(count, self.machine // stride))

    def link(self, members: int, count: int) -> str:
        """The slowest link between `count` GPUs, of which each machine has `members`."""
        return "nvlink" if members == count else "network"

    def rate(self, members: int, count: int) -> float:
        """Bytes per second that each of `count` GPUs sends in a ring. Between machines, the adapters of all members
        share the work."""
        fast = self.nvlink * REACHED
        return fast if members == count else min(fast, members * self.network * REACHED)


SHARES = ("efficiency", "core_megatron", "core_pytorch", "efficiency_alone", "core_alone")
"""Shares of the peak rate: what calibration changes."""

MAY_BE_ZERO = ("flops8", "context", "efficiency_alone", "core_alone")
MIN_NUMBER, MAX_NUMBER = 1e-3, 1e24
"""The range of a GPU's numbers: far beyond real ones, while times stay finite."""

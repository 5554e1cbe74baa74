"""Cost records of H100-like machines, in microseconds: NVLink, InfiniBand and PCIe."""

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from .costs import Costs, Tier

FLOPS = 400_000_000
"""Operations in a microsecond: 400 of an H100's 989 dense TFLOP/s in bf16, which large matrix products reach."""

NVLINK, INFINIBAND, PCIE = 225_000, 25_000, 27_500
"""Elements of two bytes in a microsecond, in one direction: 450, 50 and 55 GB/s."""

NVLINK_HOP, INFINIBAND_HOP = 2, 5
"""Microseconds for each hop of a ring, however small the message."""

SENDING = ("allreduce", "allgather", "scatterreduce", "pass_to")

FREE: Mapping[str, int] = MappingProxyType(dict.fromkeys(("loss", "update", "receive"), 0))


def _each(price: Any) -> Mapping[str, Any]:
    return MappingProxyType(dict.fromkeys(SENDING, price))


_INFINIBAND: dict[str, Any] = {"alpha": _each(INFINIBAND_HOP), "beta": _each(Fraction(1, INFINIBAND))}
_NVLINK: dict[str, Any] = {"alpha": _each(NVLINK_HOP), "beta": _each(Fraction(1, NVLINK))}
_MACHINES: dict[str, Any] = {
    **_NVLINK,
    "islands": 4,
    "alpha_between": _INFINIBAND["alpha"],
    "beta_between": _INFINIBAND["beta"],
}
_PCIE: dict[str, Any] = {
    "tiers": MappingProxyType({"host": Tier(0, 0)}),
    "beta": MappingProxyType(dict.fromkeys(("offload", "fetch"), Fraction(1, PCIE))),
}


def _hopper(name: str, hidden: int = 4096, length: int = 2048, **more: Any) -> Costs:
    fixed: dict[str, Any] = {"ticks": FREE, "unit": 1, "flops_per_tick": FLOPS, "time_unit": "us"}
    return Costs(f"hopper_{name}", hidden=hidden, length=length, **fixed, **more)


HOPPER = (
    _hopper("infiniband", overlap=True, **_INFINIBAND),
    _hopper("nvlink", **_NVLINK),
    _hopper("machines", **_MACHINES),
    _hopper("long_machines", length=4096, **_MACHINES),
    _hopper("narrow", hidden=1024, length=8192, overlap=True, **_INFINIBAND),
    _hopper("host", hidden=3072, length=16384, overlap=True, **_PCIE),
)
"""A tick is a microsecond. A matrix product takes its operations divided by FLOPS; updates are free. Each group is one
ring: in several machines it runs at the speed of the network."""

HOPPER_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "hopper_infiniband": "microseconds on H100-like GPUs, one in each machine; communication overlaps computation",
        "hopper_nvlink": "microseconds on H100-like GPUs in one machine",
        "hopper_machines": "microseconds on H100-like GPUs, four in each machine",
        "hopper_long_machines": "hopper_machines, with 4,096 tokens in a microbatch",
        "hopper_narrow": "hopper_infiniband, with a width of 1,024 and 8,192 tokens in a microbatch",
        "hopper_host": "microseconds on one H100-like GPU and its host; copies overlap computation",
    }
)
"""What is particular to each."""

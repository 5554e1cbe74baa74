"""The cost records that have a name: a trace names the one it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .costs import CLASSIC, CLASSIC_TICKS, HIDDEN, LENGTH, Costs, Tier

LONG = 8 * LENGTH
"""Tokens in a long microbatch: its activation is four times as large as a weight."""


def _with(prices: Mapping[str, int], **changes: int) -> Mapping[str, int]:
    return MappingProxyType({**prices, **changes})


def _finer(scale: int) -> Mapping[str, int]:
    """The classic prices in ticks of which a step has `scale` times as many."""
    return MappingProxyType({name: scale * ticks for name, ticks in CLASSIC_TICKS.items()})


def _collectives(ticks: int) -> dict[str, int]:
    return dict.fromkeys(("allreduce", "allgather", "scatterreduce"), ticks)


_STAGES = _with({}, forward=10, backward=20, loss=0, update=0, pass_to=0, receive=0)
_PARTS = _with(_STAGES, backward_input=10, backward_weight=10)
_OVERLAP = _with(CLASSIC_TICKS, **_collectives(5), pass_to=4, receive=0)
_BORDER = HIDDEN * LENGTH // 16
"""Elements of a gradient at the border of a block whose forward leaves a full activation: 2 sbh of 34 sbh bytes
(Korthikanti et al. 2022, section 4.1)."""

COSTS: Mapping[str, Costs] = MappingProxyType(
    {
        costs.name: costs
        for costs in (
            CLASSIC,
            Costs("parts", ticks=_PARTS, gradient=_BORDER),
            Costs("stages", ticks=_STAGES, gradient=_BORDER),
            Costs("gathers", ticks=_with(_STAGES, allgather=10, scatterreduce=10), gradient=_BORDER),
            Costs("long", length=LONG),
            Costs("overlap", ticks=_OVERLAP, overlap=True),
            Costs("buckets", ticks=_OVERLAP, overlap=True, calls=_with({}, allreduce=5)),
            Costs("quarters", ticks=_finer(4), unit=40),
            Costs(
                "long_quarters",
                length=LONG,
                ticks=_with(_finer(4), allgather=6, scatterreduce=6),
                unit=40,
            ),
            Costs("twentieths", ticks=_finer(2), unit=20),
            Costs("slow", ticks=_with(CLASSIC_TICKS, allreduce=40)),
            Costs("islands", islands=4, ticks_between=_with(CLASSIC_TICKS, **_collectives(12))),
            Costs("copies", length=LONG, ticks=_OVERLAP, overlap=True, tiers=MappingProxyType({"host": Tier(10, 10)})),
            Costs("streams", ticks=_OVERLAP, overlap=True, tiers=MappingProxyType({"host": Tier(None, 10)})),
            Costs("experts", ticks=_with(_OVERLAP, dispatch=5, collect=5), overlap=True),
        )
    }
)
"""Every known cost record by name."""

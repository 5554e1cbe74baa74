"""Costs in whole steps, with which a test can count on its fingers."""

from collections.abc import Mapping
from types import MappingProxyType

from lib.ledger.costs import CLASSIC_TICKS, Costs


def _classic(scale: int = 1, **changes: int) -> Mapping[str, int]:
    return MappingProxyType({name: scale * ticks for name, ticks in CLASSIC_TICKS.items()} | changes)


def _collectives(ticks: int) -> dict[str, int]:
    return dict.fromkeys(("allreduce", "allgather", "scatterreduce"), ticks)


_OVERLAP = _classic(**_collectives(5), pass_to=4, receive=0)

STEP_COSTS: Mapping[str, Costs] = MappingProxyType(
    {
        costs.name.removeprefix("step "): costs
        for costs in (
            Costs("step overlap", ticks=_OVERLAP, overlap=True),
            Costs("step buckets", ticks=_OVERLAP, overlap=True, calls=MappingProxyType({"allreduce": 5})),
            Costs("step twentieths", ticks=_classic(2), unit=20),
            Costs("step islands", islands=4, ticks_between=_classic(**_collectives(12))),
        )
    }
)

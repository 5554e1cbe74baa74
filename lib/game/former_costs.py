"""Cost records as they were before they were changed: a trace that names one was made with these prices.

A trace writes the name of a record only if the record has never been changed, and a changed one whole. So a name means
the same in every trace, however old it is.
"""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from .costs import CLASSIC_TICKS, Costs
from .named_costs import COSTS


def _classic(scale: int = 1, **changes: int) -> Mapping[str, int]:
    return MappingProxyType({name: scale * ticks for name, ticks in CLASSIC_TICKS.items()} | changes)


def _collectives(ticks: int) -> dict[str, int]:
    return dict.fromkeys(("allreduce", "allgather", "scatterreduce"), ticks)


_OVERLAP = _classic(**_collectives(5), pass_to=4, receive=0)

FORMER: Mapping[str, Costs] = MappingProxyType(
    {
        costs.name: costs
        for costs in (
            replace(COSTS["gathers"], parameters=None),
            Costs("overlap", ticks=_OVERLAP, overlap=True),
            Costs("buckets", ticks=_OVERLAP, overlap=True, calls=MappingProxyType({"allreduce": 5})),
            Costs("quarters", ticks=_classic(4), unit=40),
            Costs("twentieths", ticks=_classic(2), unit=20),
            Costs("slow", ticks=_classic(allreduce=40)),
            Costs("islands", islands=4, ticks_between=_classic(**_collectives(12))),
            Costs("experts", ticks=MappingProxyType({**_OVERLAP, "dispatch": 5, "collect": 5}), overlap=True),
        )
    }
)
"""By name: records that today have other prices."""

IN_TRACES: Mapping[str, Costs] = MappingProxyType({**COSTS, **FORMER})
"""By name: what a trace means by it."""

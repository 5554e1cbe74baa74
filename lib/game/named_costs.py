"""The cost records that have a name: a trace names the one it was made with."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from lib.errors import RuleError

from .costs import CLASSIC, CLASSIC_TICKS, HIDDEN, LENGTH, Costs, Tier
from .hopper_costs import HOPPER, HOPPER_MEANINGS

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
            *HOPPER,
        )
    }
)
"""Every known cost record by name."""


MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "classic": "the puzzles' own: forward and backward 1 step each, an update 0.5, a collective 0.3, a message 0.2 "
        "to send and 0.2 to receive",
        "parts": "forward and each half of backward 1 step, communication and updates free: for zero-bubble pipelines",
        "stages": "parts without the halves: forward 1 step, backward 2",
        "gathers": "stages, where an all-gather or a reduce-scatter takes 1 step",
        "long": "classic, for long sequences: an activation is as large as four weights",
        "overlap": "classic, where communication runs beside computation: a collective takes 0.5 steps, a message 0.4",
        "buckets": "overlap, where each all-reduce takes another 0.5 steps besides those for each value",
        "quarters": "classic, in fortieths of a step, for layers that are cut in four",
        "long_quarters": "long, in fortieths of a step; an all-gather or a reduce-scatter takes 0.15 steps",
        "twentieths": "classic, in twentieths of a step, for layers that are cut in two",
        "slow": "classic, over a slow network: an all-reduce takes 4 steps",
        "islands": "classic, on machines of 4 ranks: a collective between machines takes 1.2 steps",
        "copies": "overlap, for long sequences; a value moves to the host or back in 1 step",
        "streams": "overlap; a value comes from the host in 1 step, and none goes there",
        "experts": "overlap, with the all-to-alls dispatch and collect at 0.5 steps a batch",
        **HOPPER_MEANINGS,
    }
)
"""What is particular to each known cost record."""


def costs_named(name: str) -> Costs:
    """A known cost record.

    Raises:
        RuleError: there is none of that name; the text has the nearest one, or all.
    """
    if name in COSTS:
        return COSTS[name]
    from difflib import get_close_matches  # here, because only a refusal needs it

    near = get_close_matches(name.lower(), COSTS, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COSTS)}"
    raise RuleError(f"there are no costs {name[:60]!r}; {advice}")


def pricing(operation: str) -> list[str]:
    """The names of the known cost records in which an operation has a price."""
    return [name for name, costs in COSTS.items() if costs.priced(operation)]

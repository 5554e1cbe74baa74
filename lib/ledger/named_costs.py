"""The cost records that have a name: a trace names the one it was made with.

This module decides the numbers of each record, and says in `MEANINGS` what is particular to it. What a record may hold,
and how a price becomes ticks, is decided by `costs`.

The records in microseconds follow from a few figures of an H100 and its links, which stand first. The other records
are variants of the classic prices, most in round numbers: a schedule's time can be checked by hand.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from lib.errors import RuleError, Sentences

from .costs import CLASSIC, CLASSIC_TICKS, EMBEDDING, HEAD, HIDDEN, LENGTH, Costs, Kind, Tier

FLOPS = 400_000_000
"""Operations in a microsecond: 400 of an H100's 989 dense TFLOP/s in bf16, which large matrix products reach."""

NVLINK, INFINIBAND, PCIE = 225_000, 25_000, 27_500
"""Elements of two bytes in a microsecond, in one direction: 450, 50 and 55 GB/s."""

NVLINK_HOP, INFINIBAND_HOP = 2, 5
"""Microseconds for each hop of a ring, however small the message."""

FREE: Mapping[str, int] = dict.fromkeys(("loss", "update", "receive"), 0)


_COLLECTIVES = ("allreduce", "allgather", "scatterreduce")


def _sending(price: Any, *more: str) -> Mapping[str, Any]:
    """One price for each hop, or for each element sent, of whatever sends."""
    return dict.fromkeys((*_COLLECTIVES, "pass_to", *more), price)


_INFINIBAND: dict[str, Any] = {"alpha": _sending(INFINIBAND_HOP), "beta": _sending(Fraction(1, INFINIBAND))}
_NVLINK: dict[str, Any] = {"alpha": _sending(NVLINK_HOP), "beta": _sending(Fraction(1, NVLINK))}
_NODE: dict[str, Any] = {name: _sending(price["allgather"], "dispatch", "collect") for name, price in _NVLINK.items()}
_MACHINES: dict[str, Any] = {
    **_NVLINK,
    "islands": 4,
    "alpha_between": _INFINIBAND["alpha"],
    "beta_between": _INFINIBAND["beta"],
}
_PCIE: dict[str, Any] = {
    "tiers": {"host": Tier(0, 0)},
    "beta": dict.fromkeys(("offload", "fetch"), Fraction(1, PCIE)),
}


def _hopper(name: str, hidden: int = 4096, length: int = 2048, **more: Any) -> Costs:
    """A tick is a microsecond. A matrix product takes its operations divided by FLOPS; updates are free. Each group is
    one ring: in several machines it runs at the speed of the network."""
    fixed: dict[str, Any] = {"ticks": FREE, "unit": 1, "flops_per_tick": FLOPS, "time_unit": "us"}
    return Costs(f"hopper_{name}", hidden=hidden, length=length, **fixed, **more)


LONG = 8 * LENGTH
"""Tokens in a long microbatch: its activation is four times as large as a weight."""


def _with(prices: Mapping[str, int], **changes: int) -> Mapping[str, int]:
    return {**prices, **changes}


def _computing(scale: int = 1) -> Mapping[str, int]:
    """The classic prices without communication, in ticks of which a step has `scale` times as many. To receive a
    message is free: its sender has paid by its size."""
    prices = {name: scale * ticks for name, ticks in CLASSIC_TICKS.items() if name not in (*_COLLECTIVES, "pass_to")}
    return _with(prices, receive=0)


_STAGES = _with({}, forward=10, backward=20, loss=0, update=0, pass_to=0, receive=0)
_PARTS = _with(_STAGES, backward_input=10, backward_weight=10)
_ATTENTION = _with({}, keys=32, attend=64, loss=0, update=0, receive=0)
_CONTEXT = _with(_ATTENTION, pass_to=3, allreduce=3, heads=2, tokens=2)
_COPIED = _with(CLASSIC_TICKS, **dict.fromkeys(_COLLECTIVES, 5), pass_to=4, receive=0)
_FINER = {name: 4 * ticks for name, ticks in CLASSIC_TICKS.items()}
_BORDER = HIDDEN * LENGTH // 16
"""Elements of a gradient at the border of a block whose forward leaves a full activation: 2 sbh of 34 sbh bytes
(Korthikanti et al. 2022, section 4.1)."""
_RING = Fraction(1, 65536)
"""Tenths of a step for each element sent: on 4 ranks a gather of a weight takes 0.3 steps, as in the classics."""
_BESIDE = Fraction(5, 196608)
"""The same where communication overlaps with computation: on 4 ranks a gather of a weight takes 0.5 steps."""
_LARGE = 4 * HIDDEN * HIDDEN
"""4 h^2 elements in a layer's weight: as in a real model, a weight is larger than a microbatch's activation."""
_VOCABULARY = {
    EMBEDDING: Kind(2 * HIDDEN * HIDDEN, LENGTH, None, _with({}, forward=0, backward=0)),
    HEAD: Kind(2 * HIDDEN * HIDDEN, None, 2 * HIDDEN * LENGTH, _with({}, forward=20, backward=40)),
}
"""A vocabulary of 2 h: both layers have twice a block's weights, and the head is twice the work of a block."""
_HALVES = ("forward", "backward_input", "backward_weight")
_WIDE_HEAD = Kind(4 * HIDDEN * HIDDEN, None, 4 * HIDDEN * LENGTH, _with(dict.fromkeys(_HALVES, 40), backward=80))
"""A vocabulary of 4 h: four blocks' weights, and the work of four blocks."""

COSTS: Mapping[str, Costs] = {
    costs.name: costs
    for costs in (
        CLASSIC,
        Costs("ring", ticks=_computing(), beta={**_sending(_RING), "pass_to": 2 * _RING}),
        Costs("parts", ticks=_PARTS, gradient=_BORDER),
        Costs("pairs", ticks=_with(_PARTS, pair=20), gradient=_BORDER),
        Costs("stages", ticks=_STAGES, gradient=_BORDER),
        Costs("gathers", ticks=_with(_STAGES, allgather=10, scatterreduce=10), gradient=_BORDER, parameters=_LARGE),
        Costs("long", length=LONG),
        Costs("overlap", ticks=_computing(), beta=_sending(_BESIDE), overlap=True),
        Costs(
            "buckets",
            ticks=_computing(2),
            unit=20,
            alpha=_sending(3),
            beta=_sending(Fraction(10, 393216)),
            overlap=True,
        ),
        Costs("quarters", ticks=_computing(4), unit=40, beta=_sending(4 * _RING)),
        Costs(
            "long_quarters",
            length=LONG,
            ticks=_with(_FINER, allgather=6, scatterreduce=6),
            unit=40,
        ),
        Costs("twentieths", ticks=_computing(2), unit=20, beta=_sending(2 * _RING), parameters=_LARGE),
        Costs("slow", ticks=_computing(), beta=_sending(Fraction(5, 49152))),
        Costs("islands", ticks=_computing(), beta=_sending(_RING), islands=4, beta_between=_sending(4 * _RING)),
        Costs("copies", length=LONG, ticks=_COPIED, overlap=True, tiers={"host": Tier(10, 10)}),
        Costs(
            "host_updates",
            ticks=_with({}, forward=10, backward=20, loss=0),
            overlap=True,
            tiers={"host": Tier(0, 0, None, 30)},
            beta=dict.fromkeys(("offload", "fetch"), Fraction(10, HIDDEN * HIDDEN)),
            moments=2,
        ),
        Costs("streams", ticks=_COPIED, overlap=True, tiers={"host": Tier(None, 10)}),
        Costs(
            "experts",
            ticks=_with(_computing(), dispatch=5, collect=5),
            beta=_sending(_BESIDE),
            overlap=True,
            parameters=_LARGE,
        ),
        _hopper("infiniband", overlap=True, **_INFINIBAND),
        _hopper("nvlink", **_NVLINK),
        _hopper("node", overlap=True, **_NODE),
        _hopper("machines", **_MACHINES),
        _hopper("long_machines", length=4096, **_MACHINES),
        _hopper("narrow", hidden=1024, length=8192, overlap=True, **_INFINIBAND),
        _hopper("host", hidden=3072, length=16384, overlap=True, **_PCIE),
        Costs(
            "straggler",
            ticks=_with({}, forward=20, backward=40, loss=0, update=0, allreduce=5),
            slow={3: Fraction(2)},
        ),
        Costs("vocabulary", ticks=_STAGES, gradient=_BORDER, kinds=_VOCABULARY),
        Costs(
            "vocabulary_shards",
            ticks=_with(_PARTS, allreduce=5),
            gradient=_BORDER,
            overlap=True,
            lanes="each",
            kinds={HEAD: _WIDE_HEAD},
        ),
        Costs(
            "outer_steps",
            ticks=_with({}, forward=10, backward=20, loss=0, update=5, outer_update=5, allreduce=80),
            overlap=True,
        ),
        Costs("sequences", length=LONG, ticks=_with(_ATTENTION, pass_to=0)),
        Costs("context", length=LONG, ticks=_CONTEXT, overlap=True),
        Costs("grouped", length=LONG, ticks=_CONTEXT, overlap=True, keys_values=HIDDEN * LONG // 4),
    )
}
"""Every known cost record by name."""


MEANINGS: Mapping[str, str] = {
    "classic": "for the classic puzzles: forward and backward 1 step each, an update 0.5, a collective 0.3, a "
    "message 0.2 to send and 0.2 to receive",
    "ring": "classic, with communication priced by size: 1 step for each 655,360 elements that a rank sends in "
    "collectives, and for half as many in messages",
    "parts": "forward and each half of backward 1 step, communication and updates free: for zero-bubble pipelines",
    "pairs": "parts, where a forward of one microbatch and a backward of another at once take 2 steps together",
    "stages": "parts, with backward in one call: forward 1 step, backward 2",
    "gathers": "stages, where an all-gather or a reduce-scatter takes 1 step and a layer has four times as many "
    "weights",
    "long": "classic, for long sequences: an activation is as large as four weights",
    "overlap": "communication overlaps with computation: 1 step for each 393,216 elements sent",
    "buckets": "overlap, with 0.15 steps for each hop of a ring and 1 for each 786,432 elements sent: an "
    "all-reduce over 4 ranks takes 0.9 steps a call and 0.5 a gradient",
    "quarters": "ring, in fortieths of a step, for layers that are split in four",
    "long_quarters": "long, in fortieths of a step; an all-gather or a reduce-scatter takes 0.15 steps",
    "twentieths": "ring, in twentieths of a step, for layers that are split in two and have four times as many weights",
    "slow": "ring, over a slow network: 1 step for each 98,304 elements sent",
    "islands": "ring, on machines of 4 ranks: between machines 1 step for each 163,840 elements sent",
    "copies": "for long sequences; a value moves to the host or back in 1 step, which overlaps with computation",
    "host_updates": "forward 1 step, backward 2, an optimizer state as large as two weights; the host updates in "
    "3 steps, the device never; copies overlap with computation, 1 step for each 262,144 elements",
    "streams": "a value comes from the host in 1 step, which overlaps with computation, and none goes there",
    "experts": "overlap, with the all-to-alls dispatch and collect at 0.5 steps a batch, and four times as many "
    "weights in an expert",
    "hopper_infiniband": "microseconds on H100-like GPUs, one in each machine; communication overlaps with computation",
    "hopper_nvlink": "microseconds on H100-like GPUs in one machine",
    "hopper_node": "hopper_nvlink, where communication overlaps with computation and tokens go to experts",
    "hopper_machines": "microseconds on H100-like GPUs, four in each machine",
    "hopper_long_machines": "hopper_machines, with 4,096 tokens in a microbatch",
    "hopper_narrow": "hopper_infiniband, with a width of 1,024 and 8,192 tokens in a microbatch",
    "hopper_host": "microseconds on one H100-like GPU and its host; copies overlap with computation",
    "straggler": "forward 2 steps, backward 4, an all-reduce 0.5, and no other communication; rank 3 computes at "
    "half the speed",
    "vocabulary": "stages, with an embedding that takes no time and a head that is twice the work of a layer; both "
    "have twice the weights",
    "vocabulary_shards": "parts, with a head of four times the work of a layer and four times the weights; "
    "communication overlaps with computation: an all-reduce takes 0.5 steps, and messages none",
    "outer_steps": "forward 1 step, backward 2, an update or an outer update 0.5; an all-reduce takes 8 steps, "
    "over a slow link, and overlaps with computation",
    "sequences": "long, for layers of attention: keys and values of a microbatch take 3.2 steps and attending 6.4, "
    "each twice that backward; messages and updates are free",
    "context": "sequences, where communication overlaps with computation: a message or an all-reduce takes "
    "0.3 steps, an exchange of tokens for heads 0.2",
    "grouped": "context, with grouped heads: keys and values are a quarter of an activation, not two",
}
"""What is particular to each known cost record."""


def costs_named(name: str) -> Costs:
    """A known cost record."""
    if name in COSTS:
        return COSTS[name]
    from difflib import get_close_matches  # here, because only a refusal needs it

    near = get_close_matches(name.lower(), COSTS, n=1)
    advice = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(COSTS)}"
    raise RuleError(SAYS("unknown costs", costs=name[:60], advice=advice))


def pricing(operation: str) -> list[str]:
    """The names of the known cost records in which an operation has a price."""
    return [name for name, costs in COSTS.items() if costs.priced(operation)]


SAYS = Sentences(
    {
        "unknown costs": "there are no costs {costs!r}; {advice}",
    }
)

"""Sizes in elements and prices in ticks, from the written rules (docs/extended.md), without any code of `lib`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from random import Random
from typing import NamedTuple

PRODUCTS = ("forward", "backward", "backward_input", "backward_weight")
COLLECTIVES = ("allreduce", "allgather", "scatterreduce", "dispatch", "collect")
LANES = {**dict.fromkeys((*COLLECTIVES, "pass_to"), "network"), "offload": "down", "fetch": "up"}
COPIES = ("offload", "fetch")
EVENTS = (*PRODUCTS, *LANES, "loss", "update", "receive")


class Piece(NamedTuple):
    """How large a value is: its kind ("weight", "state", "wgrad", "act" or "grad"), how many batches it has, and which
    shards of how many are here; of activations, shares of the tokens. On a tier it takes nothing of the device."""

    kind: str
    batches: int = 1
    shards: tuple[int, ...] = (0,)
    total: int = 1
    tier: str = ""


class Prices(NamedTuple):
    """Sizes in elements and prices in ticks, by operation. Of a tier: the price of a copy to it, and of one from it."""

    hidden: int
    length: int
    ticks: Mapping[str, int]
    parameters: int | None = None
    gradient: int | None = None
    overlap: bool = False
    lane_for_each_group: bool = False
    calls: Mapping[str, int] = {}
    alpha: Mapping[str, int] = {}
    beta: Mapping[str, Fraction] = {}
    islands: int = 0
    ticks_between: Mapping[str, int] = {}
    alpha_between: Mapping[str, int] = {}
    beta_between: Mapping[str, Fraction] = {}
    flops_per_tick: int = 0
    tiers: Mapping[str, tuple[int, int]] = {}

    def elements(self, piece: Piece) -> int:
        """Elements of a value, wherever it is."""
        weight = self.parameters or self.hidden**2
        activation = self.hidden * self.length
        gradient = activation if self.gradient is None else self.gradient
        whole = {"act": activation, "grad": gradient}.get(piece.kind, weight)
        times = piece.batches if piece.kind in ("act", "grad") else 1
        return times * sum((i + 1) * whole // piece.total - i * whole // piece.total for i in piece.shards)

    def communication(self, name: str, items: int, elements: int, ranks: Sequence[int]) -> int:
        """Ticks of a collective or a message."""
        apart = self.islands and ranks[0] // self.islands != ranks[-1] // self.islands
        ticks = self.ticks_between if apart else self.ticks
        hops = {"allreduce": 2 * (len(ranks) - 1), "pass_to": 1, "receive": 0}.get(name, len(ranks) - 1)
        return ticks.get(name, 0) * items + self._by_size(name, hops, sent(name, elements, len(ranks)), bool(apart))

    def copy(self, name: str, tier: str, elements: int) -> int:
        """Ticks of a copy to or from a tier."""
        return self.tiers[tier][name == "fetch"] + self._by_size(name, 1, elements, False)

    def _by_size(self, name: str, hops: int, elements: int, apart: bool) -> int:
        hop = {**self.alpha, **(self.alpha_between if apart else {})}.get(name, 0)
        element = {**self.beta, **(self.beta_between if apart else {})}.get(name, 0)
        return self.calls.get(name, 0) + hop * hops + ceil(element * elements)

    def computation(self, name: str, batches: int, share: Fraction) -> int:
        """Ticks of what a rank does alone; of a product with a share of the weight, that share."""
        if name not in PRODUCTS:
            return self.ticks.get(name, 0) * batches
        price = Fraction(self.ticks.get(name, 0))
        if self.flops_per_tick:
            flops = 2 * (self.parameters or self.hidden**2) * self.length * (2 if name == "backward" else 1)
            price = Fraction(flops, self.flops_per_tick)
        return ceil(price * batches * share)


def sent(name: str, elements: int, n: int) -> int:
    """What one of n ranks sends of so many elements that it brings, on a ring."""
    shares = {"allreduce": 2 * (n - 1), "allgather": n * (n - 1), "pass_to": n, "receive": 0}
    return shares.get(name, n - 1) * elements // n


def random_prices(choice: Random) -> Prices:
    """Prices by value or by size, with or without overlap."""
    messages = (*COLLECTIVES, "pass_to", "receive")
    prices = Prices(
        hidden=choice.randint(2, 12),
        length=choice.randint(2, 24),
        ticks={name: choice.randrange(8) for name in (*PRODUCTS, *messages, "loss", "update")},
        parameters=choice.choice((None, None, choice.randint(1, 99))),
        gradient=choice.choice((None, choice.randint(1, 40))),
        overlap=choice.random() < 0.7,
        lane_for_each_group=choice.random() < 0.5,
        tiers={"host": (choice.randrange(9), choice.randrange(9))},
    )
    if choice.random() < 0.5:
        return prices
    sized = (*COLLECTIVES, *COPIES, "pass_to")
    return prices._replace(
        calls={name: choice.randrange(4) for name in sized},
        alpha={name: choice.randrange(3) for name in sized},
        beta={name: Fraction(choice.randrange(9), choice.randint(1, 99)) for name in sized},
        islands=choice.randrange(4),
        ticks_between={name: choice.randrange(12) for name in messages},
        alpha_between={name: choice.randrange(5) for name in choice.sample(messages, 3)},
        beta_between={
            name: Fraction(choice.randrange(9), choice.randint(1, 99)) for name in choice.sample(messages, 3)
        },
        flops_per_tick=choice.choice((0, choice.randint(1, 4000))),
    )

"""Sizes in elements and prices in ticks, from the written rules (docs/extended.md), without any code of `lib`."""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from random import Random
from typing import NamedTuple

PRODUCTS = ("forward", "backward", "backward_input", "backward_weight")
ROOTED = ("broadcast", "reduce")
COLLECTIVES = ("allreduce", "allgather", "scatterreduce", "dispatch", "collect", *ROOTED)
LANES = {**dict.fromkeys((*COLLECTIVES, "pass_to"), "network"), "offload": "down", "fetch": "up"}
LANES.update(tier_update="processor", move="between tiers")
COPIES = ("offload", "fetch", "tier_update", "move")
"""What is done on a memory tier; a tier's prices are in this order, and a move has none
of its own."""
EVENTS = (*PRODUCTS, *LANES, "loss", "update", "receive")


class Piece(NamedTuple):
    """How large a value is: its kind ("weight", "state", "wgrad", "norm", "act" or "grad"), how many batches it has,
    and which shards of how many are here; of activations, shares of the tokens. On a tier it takes nothing of the
    device."""

    kind: str
    batches: int = 1
    shards: tuple[int, ...] = (0,)
    total: int = 1
    tier: str = ""
    layer: int = 0
    """The layer that a weight is of or that an activation enters; of a gradient, the layer that it enters backward."""
    numbers: tuple[int, ...] = ()
    """The microbatches of an activation or its gradient."""


class Kind(NamedTuple):
    """A layer of its own kind: elements of its weight, input and output, and its own ticks. None: as in the prices."""

    weight: int | None
    inp: int | None
    out: int | None
    ticks: Mapping[str, int]


class Prices(NamedTuple):
    """Sizes in elements and prices in ticks, by operation. Of a tier: the price of a copy to it, of one from it,
    and of an update there."""

    hidden: int
    length: int
    ticks: Mapping[str, int]
    parameters: int | None = None
    gradient: int | None = None
    overlap: bool = False
    lanes: str = "one"
    """One of a rank, one for each "group", or "each", which also has one for the messages to every rank."""
    calls: Mapping[str, int] = {}
    alpha: Mapping[str, int] = {}
    beta: Mapping[str, Fraction] = {}
    islands: int = 0
    ticks_between: Mapping[str, int] = {}
    alpha_between: Mapping[str, int] = {}
    beta_between: Mapping[str, Fraction] = {}
    flops_per_tick: int = 0
    tiers: Mapping[str, tuple[int, int, int]] = {}
    kinds: tuple[Kind, ...] = ()
    """By layer, or none."""
    lengths: tuple[Fraction, ...] = ()
    """By microbatch, or none."""
    slow: Mapping[int, Fraction] = {}
    moments: int = 1

    def elements(self, piece: Piece) -> int:
        """Elements of a value, wherever it is."""
        if piece.kind == "norm":
            return 1
        weight = self.parameters or self.hidden**2
        activation = self.hidden * self.length
        gradient = activation if self.gradient is None else self.gradient
        if self.kinds and piece.kind in ("weight", "state", "wgrad"):
            weight = self.kinds[piece.layer].weight or weight
        if self.kinds and piece.kind == "act":
            own = self.kinds[piece.layer - 1].out if piece.layer else self.kinds[0].inp
            activation = own or activation
        if self.kinds and piece.kind == "grad" and piece.layer >= 0:
            gradient = self.kinds[piece.layer].out or gradient
        whole = {"act": activation, "grad": gradient}.get(piece.kind, weight)
        times = {"act": piece.batches, "grad": piece.batches, "state": self.moments}.get(piece.kind, 1)
        if self.lengths and piece.kind in ("act", "grad"):
            assert len(piece.numbers) == piece.batches
            return sum(_held(int(whole * self.lengths[number]), piece) for number in piece.numbers)
        return times * _held(whole, piece)

    def communication(self, name: str, items: int, elements: int, ranks: Sequence[int]) -> int:
        """Ticks of a collective or a message."""
        apart = self.islands and ranks[0] // self.islands != ranks[-1] // self.islands
        ticks = self.ticks_between if apart else self.ticks
        hops = {"allreduce": 2 * (len(ranks) - 1), "pass_to": 1, "receive": 0}.get(name, len(ranks) - 1)
        return ticks.get(name, 0) * items + self._by_size(name, hops, sent(name, elements, len(ranks)), bool(apart))

    def copy(self, name: str, tier: str, elements: int, source: str = "") -> int:
        """Ticks of a copy to or from a tier or between two, or of an update there, by the elements of its gradient."""
        if name == "move":
            return self.copy("fetch", source, elements) + self.copy("offload", tier, elements)
        return self.tiers[tier][COPIES.index(name)] + self._by_size(name, 1, elements, False)

    def _by_size(self, name: str, hops: int, elements: int, apart: bool) -> int:
        hop = {**self.alpha, **(self.alpha_between if apart else {})}.get(name, 0)
        element = {**self.beta, **(self.beta_between if apart else {})}.get(name, 0)
        return self.calls.get(name, 0) + hop * hops + ceil(element * elements)

    def computation(self, name: str, batches: Sequence[int], share: Fraction, rank: int, layer: int) -> int:
        """Ticks of what a rank does alone; of a product with a share of the weight, that share."""
        items, weight, own = len(batches) or 1, self.parameters or self.hidden**2, None
        if self.kinds:
            weight, own = self.kinds[layer].weight or weight, self.kinds[layer].ticks.get(name)
        price = Fraction(self.ticks.get(name, 0))
        if self.flops_per_tick and name in PRODUCTS:
            price = Fraction(2 * weight * self.length * (2 if name == "backward" else 1), self.flops_per_tick)
        price = price if own is None else Fraction(own)
        if not (self.kinds or self.lengths or self.slow):
            return ceil(price * items * share)
        if name not in (*PRODUCTS, "loss", "update"):
            return 0
        lengths = [self.lengths[number] if self.lengths else Fraction(1) for number in batches] or [Fraction(1)]
        return sum(ceil(ceil(price * share * length) * self.slow.get(rank, 1)) for length in lengths)


def _held(whole: int, piece: Piece) -> int:
    """Elements of the shards of a piece, of so many."""
    return sum((i + 1) * whole // piece.total - i * whole // piece.total for i in piece.shards)


def sent(name: str, elements: int, n: int) -> int:
    """What one of n ranks sends of so many elements that it brings, on a ring."""
    shares = {"allreduce": 2 * (n - 1), "allgather": n * (n - 1), "pass_to": n, "receive": 0}
    shares |= dict.fromkeys(ROOTED, n if n > 1 else 0)
    return shares.get(name, n - 1) * elements // n


def unequal(choice: Random, prices: Prices, layers: int, batches: int, ranks: int) -> Prices:
    """The same where layers are of several kinds, microbatches of several lengths, or some ranks slow. All sizes of
    activations are even, so that half of a microbatch is a whole number of elements."""
    kinds, inp = [], choice.choice((None, 2 * choice.randint(1, 20)))
    for _ in range(layers if choice.random() < 0.7 else 0):
        out = choice.choice((None, 2 * choice.randint(1, 60)))
        timed = choice.sample((*PRODUCTS, "loss", "update"), choice.randrange(4))
        kinds.append(
            Kind(choice.choice((None, choice.randint(1, 99))), inp, out, {n: choice.randrange(9) for n in timed})
        )
        inp = out
    lengths = [choice.choice((Fraction(1), Fraction(1, 2))) for _ in range(batches)] if choice.random() < 0.7 else []
    slow = {rank: choice.choice((Fraction(1), Fraction(3, 2), Fraction(7, 3))) for rank in range(ranks)}
    return prices._replace(
        length=2 * prices.length,
        gradient=prices.gradient and 2 * prices.gradient,
        kinds=tuple(kinds),
        lengths=tuple(lengths),
        slow=slow if choice.random() < 0.5 else {},
    )


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
        lanes=choice.choice(("one", "group", "each")),
        tiers={tier: (choice.randrange(9), choice.randrange(9), choice.randrange(9)) for tier in ("host", "disk")},
        moments=choice.choice((1, 1, 2)),
    )
    if choice.random() < 0.5:
        return prices
    sized = (*COLLECTIVES, *COPIES[:3], "pass_to")
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

"""Sizes and durations: one frozen record, counted in whole elements and whole ticks.

Time is whole ticks and prices are fractions, so that sums never drift and every machine gets the same figures; floats
would differ in the last digit, and a target would be met on one machine only. What is sent is counted by the ring
algorithms, not measured. Layers, ranks and microbatches that differ are a record of their own, `Unequal`, which a game
makes once: sizes by layer in every record would slow down the games in which all are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.errors import RuleError, Sentences

# --- Bounds: whatever can be made can be written and read ---

MAX_NUMBER = 10**9
"""The largest number in a cost record, and the most ticks of one communication."""

MAX_PARAMETERS = 10**15
"""The largest weight of a layer, in elements."""

MAX_DIGITS = 18
"""Decimal digits of either part of a fraction."""

MAX_NAME = 100
"""Characters of a name."""


def checked_int(given: object, name: str, minimum: int = 0, maximum: int = MAX_NUMBER) -> int:
    """`given`, if it is a whole number in bounds."""
    if type(given) is not int or not minimum <= given <= maximum:
        raise RuleError(SAYS("no number in bounds", name=name, minimum=minimum, maximum=maximum, got=given))
    return given


def fraction(given: object, name: str) -> Fraction:
    """`given` as an exact fraction; a number with a point is none."""
    if type(given) is int or isinstance(given, Fraction):
        exact = Fraction(given)
        if exact >= 0 and max(exact.as_integer_ratio()) < 10**MAX_DIGITS:
            return exact
    raise RuleError(SAYS("no fraction", name=name, digits=MAX_DIGITS, got=given))


def checked_text(given: object, name: str) -> str:
    """`given`, if it is a short text."""
    if not isinstance(given, str) or len(given) > MAX_NAME:
        raise RuleError(SAYS("no short text", name=name, most=MAX_NAME, got=given))
    return given


def checked_mapping(given: object, name: str) -> Mapping[str, Any]:
    """`given`, if it maps names to something."""
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise RuleError(SAYS("no mapping", name=name, got=given))
    return given


# --- Memories beside a device's own, such as the host's ---

COPYING = frozenset(("offload", "fetch", "move"))
"""Operations that move values between memories."""

ON_TIER: Mapping[str, str] = {"offload": "offload", "fetch": "fetch", "move": "fetch", "tier_update": "update"}
"""By operation on a memory tier: the field of Tier that prices it. A move also has the price of an offload to the other
tier."""


class Tier(NamedTuple):
    """A memory besides the device's: the ticks to `offload` a value to it and to `fetch` one from it (None: that cannot
    be done), the elements of each rank that fit (None: any number), and the ticks of an `update` there (None: it has no
    processor). By size, a copy costs more: see Costs."""

    offload: int | None = None
    fetch: int | None = None
    capacity: int | None = None
    update: int | None = None


# --- What the ring algorithms send, and in how many hops ---


def elements_sent(operation: str, elements: int, ranks: int) -> int:
    """Elements one rank sends when it contributes `elements` to an operation of a group of `ranks`, by the ring
    algorithms.

    All-reduce 2(N-1)/N S, reduce-scatter (N-1)/N S, all-gather (N-1) times the shard (Patarasuk and Yuan 2009,
    "Bandwidth optimal all-reduce algorithms for clusters of workstations", section 3); the all-to-alls (N-1)/N S; a
    message S; along the chain of a broadcast or a reduce, all but one rank S.
    """
    match operation:
        case "allreduce":
            return 2 * (ranks - 1) * elements // ranks
        case "scatterreduce" | "dispatch" | "collect" | "heads" | "tokens":
            return (ranks - 1) * elements // ranks
        case "allgather":
            return (ranks - 1) * elements
        case "pass_to":
            return elements
        case "broadcast" | "reduce":
            return elements if ranks > 1 else 0
    return 0


def hops(operation: str, ranks: int) -> int:
    """Sequential hops of the ring algorithm: 2(n-1) for an all-reduce, n-1 for other collectives, 1 for a message."""
    match operation:
        case "allreduce":
            return 2 * (ranks - 1)
        case "pass_to":
            return 1
        case "receive":
            return 0
    return ranks - 1


# --- What makes layers, ranks and microbatches unequal ---

BLOCK, EMBEDDING, HEAD = "block", "embedding", "head"
"""The kinds that are more than a name: a layer as the costs have it, which needs no record; the first layer, which
looks token numbers up; the last one, which makes logits."""

OWN_PRICES = ("forward", "backward", "backward_input", "backward_weight", "loss", "update")
"""The operations that a kind may price."""


class Kind(NamedTuple):
    """A kind of layer: elements of its `weight`, of a microbatch's input `inp` and output `out`, and the `ticks` that
    replace the sizes and prices of the costs. None: as in the costs."""

    weight: int | None = None
    inp: int | None = None
    out: int | None = None
    ticks: Mapping[str, int] = MappingProxyType({})

    @classmethod
    def checked(cls, given: object, name: str, priced: Collection[str]) -> Kind:
        """`given`, if it can be a kind of costs that have a price for the operations `priced`."""
        owner = f"Costs: the kind {name}"
        if not isinstance(given, Kind):
            raise RuleError(SAYS("no kind", owner=owner, got=given))
        for name, most in (("weight", MAX_PARAMETERS), ("inp", MAX_NUMBER), ("out", MAX_NUMBER)):
            size = getattr(given, name)
            if size is not None:
                checked_int(size, f"{owner}: {name}", minimum=1, maximum=most)
        for operation, price in checked_mapping(given.ticks, f"{owner}: ticks").items():
            if operation not in OWN_PRICES or operation not in priced:
                timed = ", ".join(choice for choice in OWN_PRICES if choice in priced)
                raise RuleError(SAYS("kind without price", owner=owner, timed=timed, got=operation))
            checked_int(price, f"{owner}: ticks of {operation}")
        return given


def checked_slow(given: object) -> Mapping[int, Fraction]:
    """How many times slower than the others a rank computes, by rank."""
    if not isinstance(given, Mapping) or not all(type(rank) is int and rank >= 0 for rank in given):
        raise RuleError(SAYS("slow not by rank", got=given))
    slow = {rank: fraction(factor, f"Costs: slow of rank {rank}") for rank, factor in given.items()}
    for rank, factor in slow.items():
        if not 1 <= factor <= MAX_NUMBER:
            raise RuleError(SAYS("impossible slowness", rank=rank, most=MAX_NUMBER, factor=factor))
    return slow


class Unequal:
    """The sizes and prices of a game whose layers, ranks or microbatches are not all alike."""

    def __init__(self, costs: Costs, kinds: Sequence[str], lengths: Sequence[Fraction]) -> None:
        self._costs, self.lengths = costs, tuple(lengths)
        self.kinds = _kinds(costs, kinds)
        self._names = tuple(kinds)
        for batch_length in self.lengths:
            if (batch_length * costs.length).denominator > 1:
                raise RuleError(SAYS("part of a token", length=batch_length, tokens=costs.length))
            for size in self._sizes():
                if (batch_length * size).denominator > 1:
                    raise RuleError(SAYS("part of an element", length=batch_length, elements=size))

    def _sizes(self) -> set[int]:
        """The elements of activations and their gradients."""
        layers = range(len(self.kinds) + 1)
        return {*map(self.input, layers), *(self.gradient(layer - 1) for layer in layers)}

    def kind(self, layer: int) -> Kind:
        """The kind of a layer; of one that does not exist, as in the costs."""
        return self.kinds[layer] if 0 <= layer < len(self.kinds) else Kind()

    def is_kind(self, layer: int, name: str) -> bool:
        return layer < len(self._names) and self._names[layer] == name

    def weight(self, layer: int) -> int:
        """Elements of a layer's weight."""
        size = self.kind(layer).weight
        return self._costs.weight if size is None else size

    def input(self, layer: int) -> int:
        """Elements of a layer's input for a full-length microbatch; of the layer after the last one, of the output."""
        size = self.kinds[0].inp if layer == 0 and self.kinds else self.kind(layer - 1).out
        return self._costs.activation if size is None else size

    def gradient(self, layer: int) -> int:
        """Elements of the gradient of a layer's output for a full-length microbatch."""
        size = self.kind(layer).out
        return self._costs.activation_grad if size is None else size

    def of_each(self, size: int, batches: Iterable[int]) -> list[int]:
        """Elements for each of some microbatches, of `size` for a full-length one."""
        return [int(size * self.length(batch)) for batch in batches]

    def length(self, batch: int) -> Fraction:
        """The length of a microbatch, as a share of the full length."""
        return self.lengths[batch] if batch < len(self.lengths) else Fraction(1)

    def price(self, operation: str, layer: int) -> Fraction:
        """Ticks of an operation on a full-length microbatch, or of an update, on a rank that is not slow."""
        kind = self.kind(layer)
        ticks = kind.ticks.get(operation)
        return self._costs.product(operation, kind.weight) if ticks is None else Fraction(ticks)

    def ticks(self, operation: str, layer: int, batches: Iterable[int], rank: int, share: Fraction) -> int:
        """Ticks of an operation on some microbatches with a share of a layer's weight; without batches, of an update.
        Each microbatch is rounded up by itself."""
        price, slow = self.price(operation, layer) * share, self._costs.slow.get(rank, 1)
        lengths = [self.length(batch) for batch in batches] or [Fraction(1)]
        return sum(ceil(ceil(price * length) * slow) for length in lengths)


def _kinds(costs: Costs, names: Sequence[str]) -> tuple[Kind, ...]:
    """The kind of each layer, if each takes what the one before it makes."""
    kinds: list[Kind] = []
    before, makes = "", 0
    for layer, name in enumerate(names):
        if name != BLOCK and name not in costs.kinds:
            known = ", ".join((BLOCK, *costs.kinds))
            raise RuleError(SAYS("unknown kind", layer=layer, kind=name, costs=costs.name, known=known))
        kind = costs.kinds.get(name, Kind())
        takes = costs.activation if kind.inp is None else kind.inp
        if layer and takes != makes:
            raise RuleError(
                SAYS(
                    "kinds do not fit",
                    layer=layer,
                    kind=name,
                    takes=takes,
                    previous=layer - 1,
                    previous_kind=before,
                    makes=makes,
                )
            )
        makes, before = costs.activation if kind.out is None else kind.out, name
        kinds.append(kind)
    for special, only, where in ((EMBEDDING, 0, "first"), (HEAD, len(names) - 1, "last")):
        for layer in (layer for layer, name in enumerate(names) if name == special and layer != only):
            raise RuleError(SAYS("misplaced kind", layer=layer, kind=special, where=where))
    return tuple(kinds)


TICKS_PER_STEP = 10
"""In the classic costs time is counted in integer tenths of a step, so that sums never drift."""

TIME_UNITS = ("steps", "us", "ms")
"""What texts call a step of the clock: steps, or microseconds."""

MAX_TICKS_PER_STEP = 1000
"""A step has a whole number of ticks that divides this, so that three decimals write every time exactly."""

HIDDEN = 512
"""Width of a layer: a weight is HIDDEN x HIDDEN elements."""

LENGTH = 256
"""Tokens in one microbatch: an activation is HIDDEN x LENGTH elements."""

CLASSIC_TICKS: Mapping[str, int] = {
    "forward": 10,
    "backward": 10,
    "loss": 0,
    "update": 5,
    "allreduce": 3,
    "allgather": 3,
    "scatterreduce": 3,
    "pass_to": 2,
    "receive": 2,
}

PRODUCTS = frozenset(("forward", "backward", "backward_input", "backward_weight"))
"""Matrix products: they may be priced by size, and on a share of a weight they take that share of the time."""

PAIR = "pair"
"""A forward and a backward at once (DeepSeek-AI 2024, section 3.2.1)."""

ATTENDING = frozenset(("keys", "attend", "keys_backward", "attend_backward"))
"""What layers of attention compute. The costs price the first two; each takes twice as long backward."""

COMPUTING = PRODUCTS | {PAIR} | ATTENDING
"""What layers compute."""

WHY_NOT_PRICED: Mapping[str, str] = {
    "backward_input": "; backward is in one piece here",
    "backward_weight": "; backward is in one piece here",
    PAIR: "; a forward and a backward run one after the other here",
}
"""What else a refusal of an operation without a price says."""


@dataclass(frozen=True)
class Costs:
    """One setting's sizes and prices. Sizes are in elements, times in whole ticks.

    Communication takes `ticks` for each value, and where the costs have them also `calls`, `alpha` and `beta`.

    Raises:
        RuleError: naming the field that cannot be.
    """

    name: str = "classic"
    hidden: int = HIDDEN
    """Width of a layer."""
    length: int = LENGTH
    """Tokens of a microbatch. An activation has hidden x length elements."""
    ticks: Mapping[str, int] = field(default_factory=lambda: CLASSIC_TICKS)
    """Of each timed operation: per batch if it computes or is an all-to-all, otherwise per value."""
    unit: int = TICKS_PER_STEP
    """Ticks in a step."""
    gradient: int | None = None
    """Elements of a microbatch's activation gradient; by default as many as of its activation."""
    overlap: bool = False
    """Communication overlaps with computation, and its calls return handles."""
    lanes: str = "one"
    """On what pending calls run, one after the other: "one" lane of a rank, one for each "group", or "each" also with
    one for the messages to every other rank, so that a message need not wait for a collective."""
    tiers: Mapping[str, Tier] = field(default_factory=dict)
    """The memories besides the device's."""
    calls: Mapping[str, int] = field(default_factory=dict)
    """Ticks for each call of an operation."""
    alpha: Mapping[str, int] = field(default_factory=dict)
    """Ticks for each hop of a ring; a message, and a copy to or from a tier, is one hop."""
    beta: Mapping[str, Fraction] = field(default_factory=dict)
    """Ticks for each element sent, as a `Fraction`."""
    islands: int = 0
    """Ranks in one machine. A group that spans several machines has the prices in the three fields that follow."""
    ticks_between: Mapping[str, int] = field(default_factory=dict)
    """These replace `ticks` between machines."""
    alpha_between: Mapping[str, int] = field(default_factory=dict)
    """These replace `alpha`, for the operations that they name."""
    beta_between: Mapping[str, Fraction] = field(default_factory=dict)
    """These replace `beta`, for the operations that they name."""
    flops_per_tick: int = 0
    """The price of matrix products by their size, in place of their `ticks`."""
    parameters: int | None = None
    """Elements of a layer's weight, where that is not one matrix of hidden x hidden: of a transformer's layer, say."""
    time_unit: str = "steps"
    """What texts call a step: "steps", "us" or "ms"."""
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    """Kinds of layers with sizes and prices of their own."""
    slow: Mapping[int, Fraction] = field(default_factory=dict)
    """By rank: how many times slower it computes."""
    keys_values: int | None = None
    """Elements of the keys and values of a microbatch in a layer of attention; by default two activations."""
    moments: int = 1
    """How many times as large as its weight an optimizer state is: 1 for momentum, 2 for Adam."""
    weight: int = field(init=False, repr=False, compare=False)
    """Elements of one layer's weight; its gradient is as large."""
    activation: int = field(init=False, repr=False, compare=False)
    """Elements of one microbatch's activation."""
    by_value: bool = field(init=False, repr=False, compare=False)
    """Communication costs `ticks` for each value, and nothing else."""
    unequal: Unequal | None = field(init=False, repr=False, compare=False, default=None)
    """What differs between the layers, ranks or microbatches of a setting, if anything does; `for_game` sets it."""
    _priced: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._check()
        for name, content in vars(self).copy().items():
            if isinstance(content, Mapping):
                object.__setattr__(self, name, MappingProxyType(dict(content)))
        if self.unit < 1 or MAX_TICKS_PER_STEP % self.unit:
            raise RuleError(SAYS("unit does not divide", most=MAX_TICKS_PER_STEP, got=self.unit))
        priced = {*self.ticks, *self.calls, *self.alpha, *self.beta}
        priced |= {"forward", "backward"} if self.flops_per_tick else set()
        priced |= {name for name in ATTENDING if name.removesuffix("_backward") in self.ticks}
        priced |= {
            name for tier in self.tiers.values() for name, of in ON_TIER.items() if getattr(tier, of) is not None
        }
        if len(self.tiers) < 2:
            priced.discard("move")
        object.__setattr__(self, "_priced", frozenset(priced))
        weight = self.hidden * self.hidden if self.parameters is None else self.parameters
        object.__setattr__(self, "weight", weight)
        object.__setattr__(self, "activation", self.hidden * self.length)
        object.__setattr__(self, "by_value", not (self.calls or self.alpha or self.beta or self.islands))

    def _check(self) -> None:
        checked_text(self.name, "Costs: name")
        for name in ("hidden", "length", "unit", "moments"):
            checked_int(getattr(self, name), f"Costs: {name}", minimum=1)
        if self.parameters is not None:
            checked_int(self.parameters, "Costs: parameters", minimum=1, maximum=MAX_PARAMETERS)
        given = [name for name in ("gradient", "keys_values") if getattr(self, name) is not None]
        for name in ("islands", "flops_per_tick", *given):
            checked_int(getattr(self, name), f"Costs: {name}")
        for name, allowed in (("lanes", ("one", "group", "each")), ("time_unit", TIME_UNITS)):
            if getattr(self, name) not in allowed:
                choices = " or ".join(f'"{choice}"' for choice in allowed)
                raise RuleError(SAYS("no such choice", name=name, choices=choices, got=getattr(self, name)))
        for name in ("ticks", "calls", "alpha", "ticks_between", "alpha_between"):
            for operation, price in checked_mapping(getattr(self, name), f"Costs: {name}").items():
                checked_int(price, f"Costs: {name} of {operation}")
        if type(self.overlap) is not bool:
            raise RuleError(SAYS("overlap not boolean", got=self.overlap))
        for place, tier in checked_mapping(self.tiers, "Costs: tiers").items():
            if not isinstance(tier, Tier):
                raise RuleError(SAYS("no tier", tier=place, got=tier))
            for name, price in tier._asdict().items():
                if price is not None:
                    checked_int(price, f"Costs: {name} of the tier {place}")
        for name in ("beta", "beta_between"):
            exact = {
                operation: fraction(price, f"Costs: {name} of {operation}")
                for operation, price in checked_mapping(getattr(self, name), f"Costs: {name}").items()
            }
            object.__setattr__(self, name, exact)
        object.__setattr__(self, "slow", checked_slow(self.slow))
        if PAIR in self.ticks:
            forward, backward = (self.ticks.get(name, 0) for name in ("forward", "backward"))
            if not max(forward, backward) <= self.ticks[PAIR] <= forward + backward:
                raise RuleError(
                    SAYS("impossible pair", least=max(forward, backward), most=forward + backward, got=self.ticks[PAIR])
                )
        for name, kind in checked_mapping(self.kinds, "Costs: kinds").items():
            checked_text(name, "Costs: name of a kind")
            Kind.checked(kind, name, self.ticks)
        kinds = {name: kind._replace(ticks=MappingProxyType(dict(kind.ticks))) for name, kind in self.kinds.items()}
        object.__setattr__(self, "kinds", kinds)

    def for_game(self, kinds: Sequence[str], lengths: Sequence[Fraction]) -> Costs:
        """These costs for a game whose layers are of some kinds and whose microbatches have some lengths, which are as
        many as there are; none: all are alike.

        Raises:
            RuleError: the layers do not fit together, or a size is not a whole number.
        """
        if not (kinds or lengths or self.slow or self.unequal):
            return self
        costs = replace(self)
        if kinds or lengths or self.slow:
            object.__setattr__(costs, "unequal", Unequal(costs, kinds, lengths))
        return costs

    @property
    def activation_grad(self) -> int:
        """Elements of one microbatch's activation gradient."""
        return self.activation if self.gradient is None else self.gradient

    @property
    def keys_and_values(self) -> int:
        """Elements of the keys and values of one microbatch."""
        return 2 * self.activation if self.keys_values is None else self.keys_values

    def duration(self, operation: str, items: int = 1, held: int = 1, total: int = 1) -> int:
        """Ticks of `operation` on `items` batches (forward, backward, loss) or values, with shards `held` of `total`
        of the weight.

        Raises:
            RuleError: the operation has no price.
        """
        if (held != total or self.flops_per_tick) and operation in PRODUCTS:
            return ceil(self.product(operation) * items * held / total)
        if operation in ATTENDING and operation.endswith("_backward") and self.priced(operation):
            return 2 * self.ticks[operation.removesuffix("_backward")] * items
        try:
            return self.ticks[operation] * items
        except KeyError:
            raise self.unpriced(operation) from None

    def product(self, operation: str, weight: int | None = None) -> Fraction:
        """Ticks of a matrix product (one of PRODUCTS) on one batch, before they are rounded up; `weight` has as many
        elements, if not as many as usual.

        Raises:
            RuleError: the operation has no price.
        """
        if not self.flops_per_tick or operation not in PRODUCTS:
            return Fraction(self.duration(operation))
        flops = 2 * (weight or self.weight) * self.length * (2 if operation == "backward" else 1)
        return Fraction(flops, self.flops_per_tick)

    def transfer(self, operation: str, items: int, elements: int, ranks: Sequence[int]) -> int:
        """Ticks of a communication of `items` values between `ranks` (ascending; or sender and receiver), the most
        that one of them contributes being `elements`.

        Raises:
            RuleError: the operation has no price.
        """
        if self.by_value:
            return self.duration(operation, items)
        self.require_priced(operation)
        crosses = self.crosses(ranks)
        ticks = self.ticks_between if crosses else self.ticks
        sent = elements_sent(operation, elements, len(ranks))
        return ticks.get(operation, 0) * items + self.by_size(operation, hops(operation, len(ranks)), sent, crosses)

    def by_size(self, operation: str, hops: int, sent: int, crosses: bool = False) -> int:
        """Ticks of a communication besides `ticks`: for the call, each hop, and each element sent. `crosses`: its group
        is in several machines.

        Raises:
            RuleError: they are too many.
        """
        alpha, beta = self.alpha.get(operation, 0), self.beta.get(operation, 0)
        if crosses:
            alpha, beta = self.alpha_between.get(operation, alpha), self.beta_between.get(operation, beta)
        ticks = self.calls.get(operation, 0) + alpha * hops + ceil(beta * sent)
        if ticks > MAX_NUMBER:
            why = SAYS("too many ticks", operation=operation, sent=sent, ticks=ticks, costs=self.name, most=MAX_NUMBER)
            raise RuleError(why)
        return ticks

    def crosses(self, ranks: Sequence[int]) -> bool:
        """True if ranks, which are ascending, or a sender and its receiver, are in several machines."""
        return bool(self.islands) and ranks[0] // self.islands != ranks[-1] // self.islands

    def priced(self, operation: str) -> bool:
        """True if the operation has a price, which may be 0: without one it does not exist in this game."""
        return operation in self._priced

    def require_priced(self, operation: str) -> None:
        """Refuses an operation that does not exist in this game.

        Raises:
            RuleError: it has no price.
        """
        if operation not in self._priced:
            raise self.unpriced(operation)

    def unpriced(self, operation: str) -> RuleError:
        """The refusal of an operation without a price."""
        more = WHY_NOT_PRICED.get(operation, "; it is not part of this game")
        if operation == "update" and (
            places := [place for place, tier in self.tiers.items() if tier.update is not None]
        ):
            more = f' on the device; make it on the {places[0]}: `on="{places[0]}"`'
        return RuleError(SAYS("no price", operation=operation, costs=self.name, more=more))

    @property
    def time_words(self) -> str:
        """What texts call the time that a run takes: 'timesteps' or 'us'."""
        return "timesteps" if self.time_unit == "steps" else self.time_unit

    def took(self, timesteps: float) -> str:
        """A run's time as texts say it: '33.3 timesteps', '9,498 us'."""
        return f"{timesteps:,.9g} {self.time_words}"

    def steps(self, ticks: int) -> float:
        """Ticks as steps: 199 is 19.9, never 19.900000000000006."""
        return ticks / self.unit

    def text(self, ticks: int) -> str:
        """Ticks as people read them, exactly: of ten in a step 35 is '3.5', 30 is '3'."""
        digits = next(d for d in range(4) if 10**d % self.unit == 0)
        text = f"{ticks / self.unit:.{digits}f}"
        return text.rstrip("0").rstrip(".") if digits and ticks < 10**6 else text


CLASSIC = Costs()


def steps(ticks: int) -> float:
    """Ticks of the classic costs as steps."""
    return CLASSIC.steps(ticks)


SAYS = Sentences(
    {
        "no number in bounds": "{name} must be a whole number from {minimum} to {maximum:,}; got {got!r:.60}",
        "no fraction": "{name} must be a fraction from 0 on, with at most {digits} digits above and below the line, such as Fraction(1, 4096); got {got!r:.60}",
        "no short text": "{name} must be a text of at most {most} characters; got {got!r:.60}",
        "no mapping": "{name} maps names to prices; got {got!r:.60}",
        "no kind": "{owner} must be a Kind(weight, inp, out, ticks); got {got!r:.60}",
        "kind without price": "{owner} may have ticks of {timed}; got {got}",
        "slow not by rank": "Costs: slow maps ranks to how many times slower they are, as {{3: 2}}; got {got!r:.60}",
        "impossible slowness": "Costs: slow of rank {rank} must be from 1 to {most:,}; got {factor}",
        "part of a token": "Setting: a microbatch of {length} of {tokens} tokens is not a whole number of tokens",
        "part of an element": "Setting: {length} of {elements:,} elements is not a whole number of elements",
        "unknown kind": "Setting: layer {layer} is of the kind {kind!r}, which the costs {costs!r} do not have; they have {known}",
        "kinds do not fit": "Setting: layer {layer} ({kind}) takes {takes:,} elements, layer {previous} ({previous_kind}) makes {makes:,}",
        "misplaced kind": "Setting: layer {layer} is of the kind {kind!r}, which only the {where} layer can be",
        "unit does not divide": "Costs: unit, the ticks in a step, must divide {most}; got {got!r}",
        "no such choice": "Costs: {name} must be {choices}; got {got!r}",
        "overlap not boolean": "Costs: overlap must be True or False; got {got!r:.60}",
        "no tier": "Costs: the tier {tier} must be a Tier(offload, fetch, capacity, update); got {got!r:.60}",
        "impossible pair": "Costs: a pair takes from {least} to {most} ticks here, as long as the longer of its two or as both; got {got}",
        "too many ticks": "{operation} of {sent:,} elements takes {ticks:,} ticks in the costs {costs!r}, and at most {most:,} are possible; lower its alpha or beta",
        "no price": "{operation} has no price in the costs {costs!r}{more}",
    }
)

"""Sizes and durations: one frozen record, counted in whole elements and whole ticks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import ceil
from types import MappingProxyType

from lib.errors import RuleError

from . import cost_checks
from .kinds import Kind, Unequal, checked_slow
from .ring import elements_sent, hops
from .tiers import ON_TIER, Tier
from .words import SAYS

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

CLASSIC_TICKS: Mapping[str, int] = MappingProxyType(
    {
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
)

PRODUCTS = frozenset(("forward", "backward", "backward_input", "backward_weight"))
"""Matrix products: they may be priced by size, and on a share of a weight they take that share of the time."""

PAIR = "pair"
"""A forward and a backward at once (DeepSeek-AI 2024, section 3.2.1)."""

ATTENDING = frozenset(("keys", "attend", "keys_backward", "attend_backward"))
"""What layers of attention compute. The costs price the first two; each takes twice as long backward."""

COMPUTING = PRODUCTS | {PAIR} | ATTENDING
"""What layers compute."""

WHY_NOT_PRICED: Mapping[str, str] = MappingProxyType(
    {
        "backward_input": "; backward is in one piece here",
        "backward_weight": "; backward is in one piece here",
        PAIR: "; a forward and a backward run one after the other here",
    }
)
"""What else a refusal of an operation without a price says."""


def _none() -> Mapping[str, int]:
    return MappingProxyType({})


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
    tiers: Mapping[str, Tier] = field(default_factory=lambda: MappingProxyType({}))
    """The memories besides the device's."""
    calls: Mapping[str, int] = field(default_factory=_none)
    """Ticks for each call of an operation."""
    alpha: Mapping[str, int] = field(default_factory=_none)
    """Ticks for each hop of a ring; a message, and a copy to or from a tier, is one hop."""
    beta: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    """Ticks for each element sent, as a `Fraction`."""
    islands: int = 0
    """Ranks in one machine. A group that spans several machines has the prices in the three fields that follow."""
    ticks_between: Mapping[str, int] = field(default_factory=_none)
    """These replace `ticks` between machines."""
    alpha_between: Mapping[str, int] = field(default_factory=_none)
    """These replace `alpha`, for the operations that they name."""
    beta_between: Mapping[str, Fraction] = field(default_factory=lambda: MappingProxyType({}))
    """These replace `beta`, for the operations that they name."""
    flops_per_tick: int = 0
    """The price of matrix products by their size, in place of their `ticks`."""
    parameters: int | None = None
    """Elements of a layer's weight, where that is not one matrix of hidden x hidden: of a transformer's layer, say."""
    time_unit: str = "steps"
    """What texts call a step: "steps", "us" or "ms"."""
    kinds: Mapping[str, Kind] = field(default_factory=lambda: MappingProxyType({}))
    """Kinds of layers with sizes and prices of their own."""
    slow: Mapping[int, Fraction] = field(default_factory=lambda: MappingProxyType({}))
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
        cost_checks.checked_text(self.name, "Costs: name")
        for name in ("hidden", "length", "unit", "moments"):
            cost_checks.checked_int(getattr(self, name), f"Costs: {name}", minimum=1)
        if self.parameters is not None:
            cost_checks.checked_int(self.parameters, "Costs: parameters", minimum=1, maximum=cost_checks.MAX_PARAMETERS)
        given = [name for name in ("gradient", "keys_values") if getattr(self, name) is not None]
        for name in ("islands", "flops_per_tick", *given):
            cost_checks.checked_int(getattr(self, name), f"Costs: {name}")
        for name, allowed in (("lanes", ("one", "group", "each")), ("time_unit", TIME_UNITS)):
            if getattr(self, name) not in allowed:
                choices = " or ".join(f'"{choice}"' for choice in allowed)
                raise RuleError(SAYS("no such choice", name=name, choices=choices, got=getattr(self, name)))
        for name in ("ticks", "calls", "alpha", "ticks_between", "alpha_between"):
            for operation, price in cost_checks.checked_mapping(getattr(self, name), f"Costs: {name}").items():
                cost_checks.checked_int(price, f"Costs: {name} of {operation}")
        if type(self.overlap) is not bool:
            raise RuleError(SAYS("overlap not boolean", got=self.overlap))
        for place, tier in cost_checks.checked_mapping(self.tiers, "Costs: tiers").items():
            if not isinstance(tier, Tier):
                raise RuleError(SAYS("no tier", tier=place, got=tier))
            for name, price in tier._asdict().items():
                if price is not None:
                    cost_checks.checked_int(price, f"Costs: {name} of the tier {place}")
        for name in ("beta", "beta_between"):
            exact = {
                operation: cost_checks.fraction(price, f"Costs: {name} of {operation}")
                for operation, price in cost_checks.checked_mapping(getattr(self, name), f"Costs: {name}").items()
            }
            object.__setattr__(self, name, MappingProxyType(exact))
        object.__setattr__(self, "slow", checked_slow(self.slow))
        if PAIR in self.ticks:
            forward, backward = (self.ticks.get(name, 0) for name in ("forward", "backward"))
            if not max(forward, backward) <= self.ticks[PAIR] <= forward + backward:
                raise RuleError(
                    SAYS("impossible pair", least=max(forward, backward), most=forward + backward, got=self.ticks[PAIR])
                )
        for name, kind in cost_checks.checked_mapping(self.kinds, "Costs: kinds").items():
            cost_checks.checked_text(name, "Costs: name of a kind")
            Kind.checked(kind, name, self.ticks)

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
        if ticks > cost_checks.MAX_NUMBER:
            raise RuleError(
                SAYS(
                    "too many ticks",
                    operation=operation,
                    sent=sent,
                    ticks=ticks,
                    costs=self.name,
                    most=cost_checks.MAX_NUMBER,
                )
            )
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

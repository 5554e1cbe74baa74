"""What a game fixes before it is played: its size, and its setting, which the classic puzzles leave as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import NamedTuple

from lib.errors import RuleError

from .cost_checks import checked_int, fraction
from .costs import ATTENDING, CLASSIC, PAIR, PRODUCTS, Costs
from .kinds import OWN_PRICES
from .named_costs import costs_named
from .tiers import ON_TIER
from .words import SAYS

LAYERS = ("dense", "block", "experts", "attention")
"""What a layer is: one matrix; two matrices that can be cut (Megatron's MLP); one expert per shard; causal attention on
shares of the tokens."""

TASKS = ("train", "local", "outer", "infer")
"""What is to be made: weights after every batch; weights that replicas may update alone and average, or whose changes
an outer optimizer averages; outputs."""

MAX_STEPS = 10**6
MAX_SHARES = 1000


class Size(NamedTuple):
    """The shape of a problem: layers of the model, microbatches of a step, ranks."""

    layers: int
    batches: int
    ranks: int

    def __str__(self) -> str:
        return f"layers={self.layers}, batches={self.batches}, ranks={self.ranks}"


@dataclass(frozen=True, init=False)
class Setting:
    """What a game fixes besides its size, as `Setting("parts", mesh={"dp": 2, "pp": 4})`. `costs` is a record of costs
    or the name of a known one, `mesh` the length of each axis by name; `steps` counts training steps, `layer` is one of
    LAYERS, `task` one of TASKS. `kinds` has the kind of
    each dense layer, which the costs describe, and `lengths` the share of the full length that each microbatch has. The
    weights that compute may be `lag` steps older than the data. Where layers are attention, a microbatch is so many
    equal `shares` of tokens; one of half the length has a quarter of the pairs of tokens. With the task "outer", a
    round has at most `outer` steps, its average comes at most `late` steps late, and a copy keeps the share `mix` of
    its own weight when it is merged with the average. With `clip`, each update scales its gradient by the norm of the
    gradients of all layers. With `whole`, an update takes full matrices only. `frozen` layers are not trained.

    Raises: RuleError: naming the field that cannot be.
    """

    costs: Costs
    mesh: tuple[tuple[str, int], ...]
    steps: int
    layer: str
    task: str
    kinds: tuple[str, ...]
    lengths: tuple[Fraction, ...]
    lag: int
    shares: int
    outer: int
    late: int
    mix: Fraction
    clip: bool
    whole: bool
    frozen: tuple[int, ...]

    def __init__(
        self,
        costs: Costs | str = CLASSIC,
        mesh: Mapping[str, int] | Iterable[tuple[str, int]] = (),
        steps: int = 1,
        layer: str = "dense",
        task: str = "train",
        kinds: Iterable[str] = (),
        lengths: Iterable[Fraction | int] = (),
        lag: int = 0,
        shares: int = 1,
        outer: int = 0,
        late: int = 0,
        mix: Fraction | int = Fraction(1, 2),
        clip: bool = False,
        whole: bool = False,
        frozen: Iterable[int] = (),
    ) -> None:
        known = costs_named(costs) if isinstance(costs, str) else costs
        try:
            axes = tuple(mesh.items() if isinstance(mesh, Mapping) else mesh)
        except TypeError:
            example = {"dp": 2, "tp": 4}
            raise RuleError(SAYS("no mesh", example=example, got=mesh)) from None
        named, sizes, kept = _kinds(kinds), _lengths(lengths), fraction(mix, "Setting: mix")
        fixed = _frozen(frozen)
        given = known, axes, steps, layer, task, named, sizes, lag, shares, outer, late, kept, clip, whole, fixed
        for name, content in zip(FIELDS, given, strict=True):
            object.__setattr__(self, name, content)
        self._check()
        object.__setattr__(self, "costs", self.costs.for_game(named, sizes))

    def _check(self) -> None:
        if not isinstance(self.costs, Costs):
            raise RuleError(SAYS("no costs", got=self.costs))
        checked_int(self.steps, "Setting: steps", 1, MAX_STEPS)
        checked_int(self.lag, "Setting: lag", 0, MAX_STEPS)
        if self.lag and self.task != "train":
            raise RuleError(SAYS("lag without training", task=self.task))
        self._check_outer()
        for name in ("clip", "whole"):
            if type(getattr(self, name)) is not bool:
                raise RuleError(SAYS("not boolean", name=name, got=getattr(self, name)))
        if self.clip and self.task != "train":
            raise RuleError(SAYS("clip without training"))
        checked_int(self.shares, "Setting: shares", 1, MAX_SHARES)
        if self.shares > 1 or self.layer == "attention":
            self._check_attention()
        for name, known in (("layer", LAYERS), ("task", TASKS)):
            if getattr(self, name) not in known:
                raise RuleError(SAYS("none of these", name=name, known=", ".join(known), got=getattr(self, name)))
        if self.task == "infer" and self.steps > 1:
            raise RuleError(SAYS("several steps inferred", steps=self.steps))
        unequal = [name for name in ("kinds", "lengths") if getattr(self, name)]
        allowed = {"dense": ["kinds", "lengths"], "attention": ["lengths"]}.get(self.layer, [])
        if wrong := [name for name in unequal if name not in allowed]:
            raise RuleError(SAYS("only for dense layers", fields=" and ".join(wrong), layers=self.layer))
        if PAIR in self.costs.ticks and (unequal or self.layer != "dense"):
            raise RuleError(SAYS("pairs of unequal work"))

        if self.frozen and (self.task != "train" or self.layer == "attention" or self.lag or self.clip):
            raise RuleError(SAYS("frozen in other game"))
        if self.frozen and not all(map(self.costs.priced, ("backward_input", "backward_weight"))):
            raise RuleError(SAYS("frozen without halves", costs=self.costs.name))

    def _check_outer(self) -> None:
        for name, least in (("outer", self.task == "outer"), ("late", 0)):
            checked_int(getattr(self, name), f"Setting: {name}", int(least), MAX_STEPS)
        if not 0 <= self.mix < 1:
            raise RuleError(SAYS("mix out of bounds", mix=self.mix))
        if self.task != "outer" and (self.outer or self.late or self.mix != Fraction(1, 2)):
            raise RuleError(SAYS("outer fields without outer", task=self.task))

    def _check_attention(self) -> None:
        if self.layer != "attention":
            raise RuleError(SAYS("shares without attention", layers=self.layer))
        if self.task in ("local", "outer") or self.lag:
            raise RuleError(SAYS("attention in other game"))
        for what, size in (("tokens", self.costs.length), ("keys and values", self.costs.keys_and_values)):
            for length in (Fraction(1), *self.lengths):
                if length * size % self.shares:
                    some = f"{size:,} {what}" if length == 1 else f"{length} of {size:,} {what}"
                    raise RuleError(SAYS("shares not equal", size=some, shares=self.shares))

    def differences(self, other: Setting) -> list[str]:
        """The names of the fields in which another setting differs."""
        return [name for name in FIELDS if getattr(self, name) != getattr(other, name)]


def _kinds(given: Iterable[str]) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise RuleError(SAYS("no kinds", got=given))
    return names


def _frozen(given: Iterable[int]) -> tuple[int, ...]:
    layers = tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, Mapping)) else None
    if layers is None or not all(type(layer) is int and layer >= 0 for layer in layers):
        raise RuleError(SAYS("no frozen layers", got=given))
    return tuple(sorted({*layers}))


def _lengths(given: Iterable[object]) -> tuple[Fraction, ...]:
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise RuleError(SAYS("no lengths", got=given))
    shares = tuple(fraction(length, "Setting: the length of a microbatch") for length in given)
    for length in shares:
        if not 0 < length <= 1:
            raise RuleError(SAYS("length out of bounds", length=length))
    return shares


FIELDS = tuple(field.name for field in fields(Setting))

CLASSIC_SETTING = Setting()


@dataclass(frozen=True, slots=True)
class Game:
    """A size and a setting as the rules read them."""

    layers: int
    batches: int
    ranks: int
    setting: Setting = field(default=CLASSIC_SETTING)
    steps: int = 1
    layer: str = "dense"
    task: str = "train"
    lag: int = 0
    shares: int = 1
    prices: Mapping[str, int] = field(init=False, repr=False, compare=False)
    """Ticks for each item, of the operations for which nothing else counts."""

    def __post_init__(self) -> None:
        costs = self.setting.costs
        sized = ATTENDING | ON_TIER.keys()
        if self.layer != "dense" or costs.flops_per_tick:
            sized |= PRODUCTS
        if costs.unequal is not None:
            sized = sized | {*OWN_PRICES, PAIR}
        fixed = {name: ticks for name, ticks in costs.ticks.items() if name not in sized}
        object.__setattr__(self, "prices", fixed)

    @property
    def first_trained(self) -> int:
        """The first layer that is not frozen: nothing below it needs a gradient."""
        return next(layer for layer in range(self.layers) if layer not in self.setting.frozen)

    @classmethod
    def of(cls, size: Size, setting: Setting = CLASSIC_SETTING) -> Game:
        """The game of a size and a setting."""
        for name, what in (("kinds", "layers"), ("lengths", "batches")):
            given, count = len(getattr(setting, name)), getattr(size, what)
            if given not in (0, count):
                raise RuleError(SAYS("setting of other size", name=name, given=given, what=what, count=count))
        if setting.frozen and (setting.frozen[-1] >= size.layers or len(setting.frozen) == size.layers):
            raise RuleError(SAYS("every layer frozen", layers=size.layers, frozen=setting.frozen))
        return cls(*size, setting, setting.steps, setting.layer, setting.task, setting.lag, setting.shares)

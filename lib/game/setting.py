"""What a game fixes before it is played: its size, and its setting, which the classic puzzles leave as it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import NamedTuple

from lib.errors import RuleError

from .cost_checks import fraction
from .costs import ATTENDING, CLASSIC, PAIR, PRODUCTS, Costs
from .kinds import OWN_PRICES
from .named_costs import costs_named
from .tiers import ON_TIER

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
            raise RuleError(f"Setting: mesh has each axis with its length, as {example}; got {mesh!r}") from None
        named, sizes, kept = _kinds(kinds), _lengths(lengths), fraction(mix, "Setting: mix")
        fixed = _frozen(frozen)
        given = known, axes, steps, layer, task, named, sizes, lag, shares, outer, late, kept, clip, whole, fixed
        for name, content in zip(FIELDS, given, strict=True):
            object.__setattr__(self, name, content)
        self._check()
        object.__setattr__(self, "costs", self.costs.for_game(named, sizes))

    def _check(self) -> None:
        if not isinstance(self.costs, Costs):
            raise RuleError(f"Setting: costs must be a record of costs; got {self.costs!r}")
        if type(self.steps) is not int or not 1 <= self.steps <= MAX_STEPS:
            raise RuleError(f"Setting: steps must be a whole number from 1 to {MAX_STEPS:,}; got {self.steps!r}")
        if type(self.lag) is not int or not 0 <= self.lag <= MAX_STEPS:
            raise RuleError(f"Setting: lag must be a whole number from 0 to {MAX_STEPS:,}; got {self.lag!r}")
        if self.lag and self.task != "train":
            raise RuleError(f"Setting: lag is for the task 'train'; this one is {self.task!r}")
        self._check_outer()
        for name in ("clip", "whole"):
            if type(getattr(self, name)) is not bool:
                raise RuleError(f"Setting: {name} must be True or False; got {getattr(self, name)!r:.60}")
        if self.clip and self.task != "train":
            raise RuleError("Setting: clip is for the task 'train'")
        if type(self.shares) is not int or not 1 <= self.shares <= MAX_SHARES:
            raise RuleError(f"Setting: shares must be a whole number from 1 to {MAX_SHARES:,}; got {self.shares!r}")
        if self.shares > 1 or self.layer == "attention":
            self._check_attention()
        for name, known in (("layer", LAYERS), ("task", TASKS)):
            if getattr(self, name) not in known:
                raise RuleError(f"Setting: {name} must be one of {', '.join(known)}; got {getattr(self, name)!r}")
        if self.task == "infer" and self.steps > 1:
            raise RuleError(f"Setting: inference takes one step; got {self.steps}")
        unequal = [name for name in ("kinds", "lengths") if getattr(self, name)]
        allowed = {"dense": ["kinds", "lengths"], "attention": ["lengths"]}.get(self.layer, [])
        if wrong := [name for name in unequal if name not in allowed]:
            raise RuleError(f"Setting: {' and '.join(wrong)} are for dense layers; these are {self.layer!r}")
        if PAIR in self.costs.ticks and (unequal or self.layer != "dense"):
            raise RuleError("Setting: pairs need dense layers and equal microbatches")

        if self.frozen and (self.task != "train" or self.layer == "attention" or self.lag or self.clip):
            raise RuleError("Setting: frozen layers need the task 'train', no layers of attention, no lag and no clip")
        if self.frozen and not all(map(self.costs.priced, ("backward_input", "backward_weight"))):
            raise RuleError(f"Setting: frozen layers need costs with both halves of backward; got {self.costs.name!r}")

    def _check_outer(self) -> None:
        for name, least in (("outer", self.task == "outer"), ("late", 0)):
            steps = getattr(self, name)
            if type(steps) is not int or not least <= steps <= MAX_STEPS:
                raise RuleError(
                    f"Setting: {name} must be a whole number from {least:d} to {MAX_STEPS:,}; got {steps!r}"
                )
        if not 0 <= self.mix < 1:
            raise RuleError(f"Setting: mix must be at least 0 and less than 1; got {self.mix}")
        if self.task != "outer" and (self.outer or self.late or self.mix != Fraction(1, 2)):
            raise RuleError(f"Setting: outer, late and mix are for the task 'outer'; this one is {self.task!r}")

    def _check_attention(self) -> None:
        if self.layer != "attention":
            raise RuleError(f"Setting: shares are for layers of attention; these are {self.layer!r}")
        if self.task in ("local", "outer") or self.lag:
            raise RuleError("Setting: layers of attention have neither local replicas nor lag")
        for what, size in (("tokens", self.costs.length), ("keys and values", self.costs.keys_and_values)):
            for length in (Fraction(1), *self.lengths):
                if length * size % self.shares:
                    some = f"{size:,} {what}" if length == 1 else f"{length} of {size:,} {what}"
                    raise RuleError(f"Setting: shares are equal, and {some} cannot be divided into {self.shares}")

    def differences(self, other: Setting) -> list[str]:
        """The names of the fields in which another setting differs."""
        return [name for name in FIELDS if getattr(self, name) != getattr(other, name)]


def _kinds(given: Iterable[str]) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise RuleError(f"Setting: kinds has the kind of each layer, as ('block', 'head'); got {given!r:.60}")
    return names


def _frozen(given: Iterable[int]) -> tuple[int, ...]:
    layers = tuple(given) if isinstance(given, Iterable) and not isinstance(given, (str, Mapping)) else None
    if layers is None or not all(type(layer) is int and layer >= 0 for layer in layers):
        raise RuleError(f"Setting: frozen has the numbers of the frozen layers, as (0, 1); got {given!r:.60}")
    return tuple(sorted({*layers}))


def _lengths(given: Iterable[object]) -> tuple[Fraction, ...]:
    if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
        raise RuleError(f"Setting: lengths has the length of each microbatch; got {given!r:.60}")
    shares = tuple(fraction(length, "Setting: the length of a microbatch") for length in given)
    for length in shares:
        if not 0 < length <= 1:
            raise RuleError(f"Setting: the length of a microbatch is more than 0 and at most 1; got {length}")
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
                raise RuleError(f"Setting: {name} is of {given} {what}, and this game has {count}")
        if setting.frozen and (setting.frozen[-1] >= size.layers or len(setting.frozen) == size.layers):
            raise RuleError(
                f"Setting: this game has {size.layers} layers, of which some are trained; {setting.frozen} "
                "cannot be frozen"
            )
        return cls(*size, setting, setting.steps, setting.layer, setting.task, setting.lag, setting.shares)

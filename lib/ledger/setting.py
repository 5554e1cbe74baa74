"""What a game fixes before it is played: its size, and its setting, which the classic puzzles leave as it is.

A setting is one flat record with checked fields, so that it can be compared, written and read field by field. Settings
by inheritance, one class for each task, were rejected: tasks, kinds of layers and costs combine freely. Its notation as
JSON is here too, because a new field is written and read by the same few tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from fractions import Fraction
from typing import Any, NamedTuple

from lib.errors import RuleError, Sentences, TraceError

from .costs import (
    ATTENDING,
    CLASSIC,
    MAX_DIGITS,
    ON_TIER,
    OWN_PRICES,
    PAIR,
    PRODUCTS,
    Costs,
    Kind,
    Tier,
    checked_int,
    checked_text,
    fraction,
)
from .named_costs import COSTS, costs_named

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


# --- As JSON: what is not classic, and nothing else; reading is strict ---

FRACTION = re.compile(rf"[0-9]{{1,{MAX_DIGITS}}}(/[0-9]{{1,{MAX_DIGITS}}})?")

COST_FIELDS = tuple(field.name for field in fields(Costs) if field.init)


def setting_to_json(setting: Setting) -> dict[str, Any]:
    """The fields that are not classic, and always the costs: the name of a known record, or a whole record."""
    costs = setting.costs
    written: dict[str, Any] = {"costs": costs.name if COSTS.get(costs.name) == costs else record_to_json(costs)}
    for name in FIELDS[1:]:
        content = getattr(setting, name)
        if content != getattr(CLASSIC_SETTING, name):
            written[name] = _WRITTEN.get(name, _as_it_is)(content)
    return written


def _as_it_is(content: Any, _: str = "") -> Any:
    return content


_WRITTEN: Mapping[str, Callable[[Any], Any]] = {
    **{"mesh": dict, "kinds": list, "frozen": list, "mix": str},
    **{"lengths": lambda all: [*map(str, all)]},
}
"""How fields of a setting are written that are no text or number."""


def setting_from_json(data: Mapping[str, Any]) -> Setting:
    """The setting that `setting_to_json` wrote; other keys of `data` are not looked at."""
    given = {name: data[name] for name in FIELDS[1:] if name in data}
    try:
        if "mesh" in given:
            given["mesh"] = tuple(_numbers(given["mesh"], "mesh", minimum=1).items())
        for name, read in (("kinds", checked_text), ("lengths", _fraction)):
            if name in given:
                given[name] = tuple([read(entry, name) for entry in _list(given[name], name)])
        if "mix" in given:
            given["mix"] = _fraction(given["mix"], "mix")
        if "frozen" in given:
            given["frozen"] = _list(given["frozen"], "frozen")
        return Setting(costs_from_json(data.get("costs")), **given)
    except (RuleError, TypeError) as why:
        raise TraceError(SAYS("impossible setting", why=why)) from None


def record_to_json(costs: Costs) -> dict[str, Any]:
    """A full cost record: its name, and what is not classic."""
    written: dict[str, Any] = {"name": costs.name}
    for name in COST_FIELDS[1:]:
        content = getattr(costs, name)
        if content != getattr(CLASSIC, name):
            written[name] = _plain(content) if isinstance(content, Mapping) else content
    return written


def _plain(prices: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(name): _plain_price(price) for name, price in prices.items()}


def _plain_price(price: Any) -> Any:
    if isinstance(price, Kind):
        return [*price[:3], _plain(price.ticks)]
    return str(price) if isinstance(price, Fraction) else list(price) if isinstance(price, tuple) else price


def costs_from_json(given: Any) -> Costs:
    """Costs by the name of a known record, or as a full record."""
    if isinstance(given, str) and given in COSTS:
        return COSTS[given]
    if not isinstance(given, dict):
        raise TraceError(SAYS("unknown costs read", got=given, known=", ".join(COSTS)))
    if unknown := set(given) - set(COST_FIELDS):
        raise TraceError(SAYS("unknown fields", fields=", ".join(sorted(unknown)), known=", ".join(COST_FIELDS)))
    if not isinstance(given.get("name"), str):
        raise TraceError(SAYS("costs without name"))
    try:
        return Costs(**{name: READ.get(name, _as_it_is)(content, name) for name, content in given.items()})
    except RuleError as why:
        raise TraceError(SAYS("impossible costs", why=why)) from None


def _numbers(given: Any, name: str, minimum: int = 0) -> Mapping[str, int]:
    return _read_each(given, name, lambda price: checked_int(price, name, minimum))


def _fractions(given: Any, name: str) -> Mapping[str, Fraction]:
    return _read_each(given, name, lambda price: _fraction(price, name))


def _fraction(given: Any, name: str) -> Fraction:
    if isinstance(given, str) and FRACTION.fullmatch(given) and not re.search("/0+$", given):
        return Fraction(given)
    raise TraceError(SAYS("unreadable fraction", name=name, got=given))


def _tiers(given: Any, name: str) -> Mapping[str, Tier]:
    def read(tier: Any) -> Tier:
        if not isinstance(tier, list) or len(tier) != len(Tier._fields):
            raise TraceError(SAYS("unreadable tier", fields=", ".join(Tier._fields), got=tier))
        return Tier(*tier)

    return _read_each(given, name, read)


def _read_kinds(given: Any, name: str) -> Mapping[str, Kind]:
    def read(kind: Any) -> Kind:
        if not isinstance(kind, list) or len(kind) != len(Kind._fields):
            raise TraceError(SAYS("unreadable kind", fields=", ".join(Kind._fields), got=kind))
        weight, inp, out, ticks = kind
        return Kind(weight, inp, out, _numbers(ticks, name))

    return _read_each(given, name, read)


def _slow(given: Any, name: str) -> Mapping[int, Fraction]:
    factors = _fractions(given, name)
    for rank in factors:
        if not re.fullmatch("0|[1-9][0-9]{0,8}", rank):
            raise TraceError(SAYS("not by rank", name=name, got=rank))
    return {int(rank): factor for rank, factor in factors.items()}


def _list(given: Any, name: str) -> list[Any]:
    if not isinstance(given, list):
        raise TraceError(SAYS("unreadable list", name=name, got=given))
    return given


def _read_each(given: Any, name: str, read: Callable[[Any], Any]) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise TraceError(SAYS("unreadable object", name=name, got=given))
    return {key: read(price) for key, price in given.items()}


READ: Mapping[str, Callable[[Any, str], Any]] = {
    **dict.fromkeys(("ticks", "calls", "alpha", "ticks_between", "alpha_between"), _numbers),
    **dict.fromkeys(("beta", "beta_between"), _fractions),
    "tiers": _tiers,
    "kinds": _read_kinds,
    "slow": _slow,
}
"""By field of a cost record that maps names to prices: what reads it. The record itself checks the others."""


SAYS = Sentences(
    {
        "no mesh": "Setting: mesh has each axis with its length, as {example}; got {got!r}",
        "no costs": "Setting: costs must be a record of costs; got {got!r}",
        "lag without training": "Setting: lag is for the task 'train'; this one is {task!r}",
        "not boolean": "Setting: {name} must be True or False; got {got!r:.60}",
        "clip without training": "Setting: clip is for the task 'train'",
        "none of these": "Setting: {name} must be one of {known}; got {got!r}",
        "several steps inferred": "Setting: inference takes one step; got {steps}",
        "only for dense layers": "Setting: {fields} are for dense layers; these are {layers!r}",
        "pairs of unequal work": "Setting: pairs need dense layers and equal microbatches",
        "frozen in other game": "Setting: frozen layers need the task 'train', no layers of attention, no lag and no clip",
        "frozen without halves": "Setting: frozen layers need costs with both halves of backward; got {costs!r}",
        "mix out of bounds": "Setting: mix must be at least 0 and less than 1; got {mix}",
        "outer fields without outer": "Setting: outer, late and mix are for the task 'outer'; this one is {task!r}",
        "shares without attention": "Setting: shares are for layers of attention; these are {layers!r}",
        "attention in other game": "Setting: layers of attention have neither local replicas nor lag",
        "shares not equal": "Setting: shares are equal, and {size} cannot be divided into {shares}",
        "no kinds": "Setting: kinds has the kind of each layer, as ('block', 'head'); got {got!r:.60}",
        "no frozen layers": "Setting: frozen has the numbers of the frozen layers, as (0, 1); got {got!r:.60}",
        "no lengths": "Setting: lengths has the length of each microbatch; got {got!r:.60}",
        "length out of bounds": "Setting: the length of a microbatch is more than 0 and at most 1; got {length}",
        "setting of other size": "Setting: {name} is of {given} {what}, and this game has {count}",
        "every layer frozen": "Setting: this game has {layers} layers, of which some are trained; {frozen} cannot be frozen",
        "impossible setting": "this trace has an impossible setting: {why}",
        "unknown costs read": "unknown costs {got!r:.60}; known: {known}, or a full record",
        "unknown fields": "a cost record has no {fields}; it has {known}",
        "costs without name": "a cost record has a name, which is a text",
        "impossible costs": "impossible cost record: {why}",
        "unreadable fraction": '{name} must be a fraction such as "1/4096"; got {got!r:.60}',
        "unreadable tier": "a tier is a list of {fields}; got {got!r:.60}",
        "unreadable kind": "a kind is a list of {fields}; got {got!r:.60}",
        "not by rank": "{name} must be by rank; got {got!r:.60}",
        "unreadable list": "{name} must be a list; got {got!r:.60}",
        "unreadable object": "{name} must be an object; got {got!r:.60}",
    }
)

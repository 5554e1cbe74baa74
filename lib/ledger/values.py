"""The kinds of values that a rank can hold, and what can be done with any of them: cut, join and add.

A value is a label, not a tensor: which layer, batches and shards it is of. It belongs to the record of the rank that
made it, or to none if made by hand. `layers` and `total_batches` are the model's; shard `i` of `n` is the i-th of n
equal parts of a tensor.

Values are frozen, and there are two ways to make one. A player's constructor checks each field. The rules use `made`,
which checks nothing, because values are most of a run's work and a rule has checked its inputs; a constructor with an
option to skip the checks would have to ask for it on each call. One class with a field for its kind was rejected too:
the rules tell kinds apart by type, and so does a type checker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from math import lcm
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, Self, TypeVar

from lib.errors import PuzzleError, RuleError, Sentence, Sentences
from lib.ledger.costs import CLASSIC, Costs, Unequal

from . import algebra
from .algebra import Copy, Who, batches_text, more_text, operand, shards_text, share_text, step_text

V = TypeVar("V", bound="Value")
S = TypeVar("S", bound="Sharded")
C = TypeVar("C", bound="Sharded | Batched")


class Recorder(Protocol):
    """The record of one rank's values; operations on them are recorded there."""

    def derive(self, name: str, operands: Sequence[Value], args: tuple[int, ...], rule: Callable[[], V]) -> V: ...


class Value:
    """The common part of all kinds."""

    __slots__ = ("_number", "_recorder")

    _recorder: Recorder | None
    """The record that this value belongs to, where it is value `_number`; None if it was made by hand."""
    _number: int
    layer: int
    layers: int
    kind: ClassVar[str]
    """The kind as a message names it, with its article."""
    _label: ClassVar[Callable[[Any], tuple[Any, ...]]]
    optional: ClassVar[str] = ""
    """What it may name none of: "batch" or "shard"."""
    joined: ClassVar[tuple[str, ...]]
    """The fields in which values must agree that are joined."""
    _joined: ClassVar[Callable[[Any], tuple[Any, ...]]]
    _extended: ClassVar[tuple[object, ...]]
    """The defaults of the last fields, which the classic puzzles leave as they are."""

    if TYPE_CHECKING:  # a value is a dataclass; the next two are written by `constructors`
        __dataclass_fields__: ClassVar[dict[str, Any]]

        @classmethod
        def made(cls, *label: object, **named: object) -> Self:
            """A value from fields known to be right: what the rules use, without the constructor's checks."""

        def copied(self, **changed: object) -> Self:
            """An equal value but for the fields `changed`, which must be right; it belongs to no record yet."""

        def _repr_html_(self) -> str:
            """A notebook's picture of it, which `drawing` sets, with `draw`, when it is imported."""

    def label(self) -> tuple[Any, ...]:
        """The fields as a plain tuple, in the constructor's order, without extended ones at the end as by default."""
        label, extended = type(self)._label(self), type(self)._extended
        least = n = len(label) - len(extended)
        n += max((i + 1 for i, default in enumerate(extended) if label[least + i] != default), default=0)
        return label[:n]

    def memory(self, costs: Costs = CLASSIC) -> int:
        """Elements that this value takes on its device."""
        raise NotImplementedError

    def is_complete(self) -> bool:
        """True if nothing is missing: every shard, every batch."""
        raise NotImplementedError

    def draw(self) -> Any:
        """This value as a picture, once `drawing` is imported."""
        raise PuzzleError("a value draws itself once 'import drawing' has run; write that line first")

    def __repr__(self) -> str:
        shown = (_plain_set(x) if isinstance(x, frozenset) else repr(x) for x in self.label())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.label()

    def __post_init__(self) -> None:
        """Checks the fields of a value that is made by hand, and freezes them in their plain form."""
        object.__setattr__(self, "_recorder", None)
        for name, check in CHECKS.items():
            if name in self.__dataclass_fields__:
                object.__setattr__(self, name, check(self, getattr(self, name), type(self).__name__))

    def _check_layer(self, given: object, owner: str) -> int:
        return algebra.number(given, self.layers, "layer", owner)

    def _operate(self, name: str, others: tuple[Value, ...], args: tuple[int, ...], rule: Callable[[], V]) -> V:
        """Applies `rule`, and has the operation recorded where the operands belong."""
        operands: tuple[Value, ...] = (self, *others)
        for value in operands:
            if value._recorder is not None:
                return value._recorder.derive(name, operands, args, rule)
        return rule()


class Summed(Value):
    """A value that may be added to others of its kind."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Value):
            return NotImplemented
        total: Self = self._operate("add", (other,), (), lambda: added((self, other)))
        return total

    def __radd__(self, zero: int) -> Self:
        """0 + self, as in `sum(grads)`."""
        return self if type(zero) is int and zero == 0 else NotImplemented


class Sharded(Value):
    """A value shaped like a weight: HIDDEN x HIDDEN elements, of which `shards` of `total` are here."""

    __slots__ = ()

    shards: frozenset[int]
    total: int

    def memory(self, costs: Costs = CLASSIC) -> int:
        size = costs.weight if costs.unequal is None else costs.unequal.weight(self.layer)
        if self.total == 1:
            return size
        if size % self.total:
            return algebra.uneven_size(size, self.shards, self.total)
        return len(self.shards) * (size // self.total)

    def is_complete(self) -> bool:
        return len(self.shards) == self.total

    def shard(self, i: int, n: int) -> Self:
        """Shard `i` of `n`, which this value must hold all of."""
        return self._operate("shard", (), (i, n), lambda: shard(self, i, n))

    def combine(self, other: Self) -> Self:
        """One value with the shards of both; they must not overlap."""
        return self._operate("combine", (other,), (), lambda: join_shards((self, other)))


@dataclass(frozen=True, slots=True, repr=False)
class Batched(Summed):
    """A value shaped like an activation: HIDDEN x LENGTH elements for each of its `batches`.

    It may be `parts` of a sum of `of` summands, as large as the whole, and hold `shards` of `total` of its tokens. Of
    attention, it may hold the columns of its `heads`, the i-th part of n.
    """

    layer: int
    layers: int
    batches: frozenset[int]
    total_batches: int
    step: int = 0
    parts: frozenset[int] = frozenset({0})
    of: int = 1
    shards: frozenset[int] = frozenset({0})
    total: int = 1
    copy: Copy | None = None
    version: int | None = None
    """The step of the weights that made this, if they are older than its own."""
    heads: tuple[int, int] | None = None
    vocabulary: bool = False
    """A cut head made this: shards of scores are of the vocabulary, and an input gradient has sums with it."""
    ends: ClassVar[tuple[int, int]] = 0, 0
    """The first layer that such a value can be of, and how many there are past the model's."""

    def is_complete(self) -> bool:
        whole = len(self.parts) == self.of and len(self.shards) == self.total and self.heads is None
        return whole and len(self.batches) == self.total_batches

    def to(self, kind: type[V], layer: int, **more: object) -> V:
        """A value of a kind and a layer, of the same batches and step; the other fields must be right."""
        return kind.made(layer, self.layers, self.batches, self.total_batches, step=self.step, **more)

    def shard(self, i: int, n: int) -> Self:
        """The tokens of share `i` of `n`, all of which this value must hold."""
        return self._operate("shard", (), (i, n), lambda: shard(self, i, n))

    def _check_layer(self, given: object, owner: str) -> int:
        layer, first, past = algebra.whole_number(given, "layer", owner), self.ends[0], self.layers + self.ends[1]
        if not first <= layer < past:
            raise RuleError(SAYS("no layer", owner=owner, layer=layer, layers=self.layers, first=first, last=past - 1))
        return layer

    def _elements(self, size: int, unequal: Unequal | None) -> int:
        """Elements that this value takes, of `size` for each full batch."""
        if self.heads is not None:
            size //= self.heads[1]
        if unequal is not None:
            return sum(
                algebra.uneven_size(length, self.shards, self.total) for length in unequal.of_each(size, self.batches)
            )
        if self.total == 1:
            return size * len(self.batches)
        return len(self.batches) * algebra.uneven_size(size, self.shards, self.total)


# A new value, which is frozen, becomes number `_number` of the record it belongs to.
set_recorder: Callable[[Value, object], None] = Value.__dict__["_recorder"].__set__
set_number: Callable[[Value, object], None] = Value.__dict__["_number"].__set__


def unrecorded(value: V) -> V:
    """The value itself if it belongs to no record yet, otherwise an equal one that does not: what several ranks get."""
    return value if value._recorder is None else value.copied()


def join_shards(values: Sequence[S], who: Who = operand) -> S:
    """One value with the shards of all: alike in everything else, and no shard twice."""
    first, kind = values[0], type(values[0])
    if not isinstance(first, Sharded):
        raise RuleError(SAYS("only full values", value=first))
    same, label = kind._joined, kind._joined(first)
    for i, value in enumerate(values):
        if type(value) is not kind or same(value) != label:
            require_kind(value, kind, "each value in this gather")
            require_alike(first, value, kind.joined, who, i, "gather")
    shards = [value.shards for value in values]
    if len(first.shards) == first.total and len(values) > 1:
        raise RuleError(SAYS("full already", who=who(0), value=first))
    union = algebra.disjoint_union(shards, "shard", who, "gather each shard once")
    return first.copied(shards=union)


def shard(value: C, i: int, n: int) -> C:
    """Shard `i` of `n` of `value`, which must hold every element of it; of an activation, so many of its tokens."""
    n = algebra.whole_number(n, "number of shards", "shard", least=1)
    i = algebra.number(i, n, "shard", "shard")
    if not algebra.covers(value.shards, value.total, (i,), n):
        raise RuleError(SAYS("shard not held", value=value, i=i, n=n))
    return value.copied(shards=frozenset({i}), total=n)  # type: ignore[return-value]  # as for any value


def require_kind(value: object, kind: type[V], use: str) -> V:
    """`value`, if it is of `kind`; otherwise a RuleError that says what it is instead."""
    if type(value) is kind:
        return value
    hint = algebra.order_hint(type(value), kind)
    raise RuleError(SAYS("wrong kind for use", use=use, kind=kind.kind, value=object_text(value), hint=hint))


def object_text(given: object) -> str:
    """Anything a player may pass, in words that help."""
    if isinstance(given, Value):
        return f"the {given}"
    if isinstance(given, tuple) and any(isinstance(part, Value) for part in given):
        return f"a tuple of {len(given)}; unpack it first, as in 'weight, opt_state = ...'"
    if hasattr(given, "__await__"):
        return getattr(given, "unawaited", "a coroutine that was not awaited; write 'await' before the call")
    text = repr(given)
    return f"{type(given).__name__} {text if len(text) <= 60 else text[:57] + '...'}"


def require_alike(first: Value, other: Value, names: Collection[str], who: Who, i: int, verb: str) -> None:
    for name in names:
        expected, actual = getattr(first, name), getattr(other, name)
        if expected is not actual and expected != actual:
            raise RuleError(
                SAYS(
                    "values differ",
                    verb=verb,
                    differ=algebra.DIFFERENCES.get(name, name),
                    who=who(0),
                    first=first,
                    other_who=who(i),
                    other=other,
                    advice=algebra.ALIKE_FIRST.get((verb, name), ""),
                )
            )


def _plain_set(members: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(members))) + "}" if members else "set()"


# --- The constructors that rules use: field by field, without checks ---

Constructor = Callable[..., Any]


def constructors(cls: type[Any]) -> tuple[Constructor, Constructor]:
    """`made(*label)`, a value of a kind from fields known to be right; and `copied(value, **changed)`, an equal value
    except for some fields. Neither belongs to a record.

    A value is frozen, so it is filled as an instance of a class with the same slots that is not, and then becomes one
    of `cls`. That takes half of the time of setting each slot through its descriptor.
    """
    chosen = fields(cls)
    thawed = {"__slots__": cls.__slots__, "__setattr__": object.__setattr__}  # a base may be frozen too
    twin = type(cls.__name__, cls.__bases__, thawed)
    known: dict[str, Any] = {"new": object.__new__, "cls": cls, "twin": twin}
    known |= {f"default_{f.name}": f.default for f in chosen}
    parameters = ", ".join(f.name + ("" if f.default is MISSING else f"=default_{f.name}") for f in chosen)
    body = f"""
def made({parameters}):
    made = new(twin)
    {"; ".join(f"made.{f.name} = {f.name}" for f in chosen)}
    made._recorder = None
    made.__class__ = cls
    return made

def copied(value, **changed):
    made = new(twin)
    {"; ".join(f"made.{f.name} = value.{f.name}" for f in chosen)}
    made._recorder = None
    for name in changed:
        setattr(made, name, changed[name])
    made.__class__ = cls
    return made
"""
    exec(body, known)  # as dataclasses writes its own constructors
    return known["made"], known["copied"]


# --- The kinds ---


@dataclass(frozen=True, slots=True, repr=False)
class Stepped(Sharded):
    """The fields of what an update changes: `step` 0 before the update, 1 after it."""

    layer: int
    layers: int
    step: int
    shards: frozenset[int] = frozenset({0})
    total: int = 1
    copy: Copy | None = None

    def __str__(self) -> str:
        noun = self.kind.partition(" ")[2]
        return f"{noun} of layer {self.layer}, {shards_text(self)}, step {self.step}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class Weight(Stepped):
    """The weight of one layer."""

    kind = "a weight"


@dataclass(frozen=True, slots=True, repr=False)
class OptState(Stepped):
    """The optimizer's state for one layer's weight (its momentum, say), `Costs.moments` times as large; it steps with
    the weight."""

    kind = "an optimizer state"

    def memory(self, costs: Costs = CLASSIC) -> int:
        return Sharded.memory(self, costs) * costs.moments


@dataclass(frozen=True, slots=True, repr=False)
class OuterState(Stepped):
    """The outer optimizer's state for one layer's agreed weight, as large as the weight; it steps with that weight."""

    kind = "an outer optimizer state"


@dataclass(frozen=True, slots=True, repr=False)
class Delta(Stepped, Summed):
    """By how much copies of a weight have moved away from the agreed weight, added up: an outer gradient.

    `step` is the step of the copies, `copy.since` the step of the agreed weight, and `copies` has the batches of each.
    """

    copies: tuple[tuple[int, ...], ...] = ()

    kind = "an outer gradient"

    def __post_init__(self) -> None:
        Value.__post_init__(self)
        mark = self.copy
        if mark is None or not isinstance(self.copies, (tuple, list)):
            raise RuleError(SAYS("outer gradient without copies", got=self.copies))
        copies = [algebra.numbers(batches, mark.of, "batch", "Delta") for batches in self.copies]
        if algebra.disjoint_union(copies, "batch", algebra.operand, "name each copy once") != mark.batches:
            raise RuleError(SAYS("copies of other batches", got=self.copies))
        object.__setattr__(self, "copies", tuple(sorted(tuple(sorted(batches)) for batches in copies)))

    def is_complete(self) -> bool:
        mark = self.copy
        return len(self.shards) == self.total and mark is not None and len(mark.batches) == mark.of

    def __str__(self) -> str:
        mark = self.copy
        assert mark is not None  # as it was checked
        label = f"{shards_text(self)}, round {len(mark.averages)}, steps {mark.since} to {self.step}"
        copies = f"of the copies {algebra.set_text(mark.batches)} of {mark.of}"
        return f"outer gradient of layer {self.layer}, {label}, {copies}"


@dataclass(frozen=True, slots=True, repr=False)
class WeightGrad(Sharded, Summed):
    """The gradient of one layer's weight, summed over `batches`. No batches: a zero.

    Where microbatches are cut into `shares` of tokens, it counts these: share s of batch b is number b * shares + s.
    """

    layer: int
    layers: int
    batches: frozenset[int]
    total_batches: int
    shards: frozenset[int] = frozenset({0})
    total: int = 1
    step: int = 0
    copy: Copy | None = None
    version: int | None = None
    shares: int = 1

    kind = "a weight gradient"
    optional = "batch"

    def is_complete(self) -> bool:
        return len(self.shards) == self.total and len(self.batches) == self.total_batches

    def __str__(self) -> str:
        label = f"{batches_text(self)}, {shards_text(self)}"
        return f"weight gradient of layer {self.layer}, {label}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class Activation(Batched):
    """The input of `layer`; with layer == layers, the output of the last one."""

    kind = "an activation"

    ends = 0, 1

    def memory(self, costs: Costs = CLASSIC) -> int:
        unequal = costs.unequal
        return self._elements(costs.activation if unequal is None else unequal.input(self.layer), unequal)

    def __str__(self) -> str:
        what = (
            f"input activation of layer {self.layer}" if self.layer < self.layers else "activation after the last layer"
        )
        return f"{what}, {batches_text(self)}{share_text(self)}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class ActivationGrad(Batched):
    """The gradient that `backward(layer)` consumes: the gradient of the layer's output.

    `loss` yields one labelled layers - 1, `backward(l)` one labelled l - 1; label -1 is the gradient of
    the model's input, which nothing consumes.
    """

    kind = "an activation gradient"

    ends = -1, 0

    def memory(self, costs: Costs = CLASSIC) -> int:
        unequal = costs.unequal
        return self._elements(costs.activation_grad if unequal is None else unequal.gradient(self.layer), unequal)

    def __str__(self) -> str:
        use = f"for backward({self.layer})" if self.layer >= 0 else "of the model's input, which nothing needs"
        return f"activation gradient {use}, {batches_text(self)}{share_text(self)}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class OfKeys(Batched):
    """What keys and values have in common with their gradients."""

    def memory(self, costs: Costs = CLASSIC) -> int:
        return self._elements(costs.keys_and_values, costs.unequal)

    def __str__(self) -> str:
        label = f"{batches_text(self)}{share_text(self)}{step_text(self)}"
        return f"{self.kind.partition(' ')[2]} of layer {self.layer}, {label}"


@dataclass(frozen=True, slots=True, repr=False)
class KeyValue(OfKeys):
    """The keys and values of a layer of attention, for some tokens."""

    kind = "a key-value block"


@dataclass(frozen=True, slots=True, repr=False)
class KeyValueGrad(OfKeys):
    """The gradient of keys and values. Its `parts` are summands, one for each later share of queries."""

    kind = "a key-value gradient"


@dataclass(frozen=True, slots=True, repr=False)
class Scalar(Summed):
    """One element: the sum of the squares of a step's gradient, whose root is its norm.

    Shard i of n of layer l, of L layers, is shard l * n + i of `total` = L * n.
    """

    layers: int
    step: int
    shards: frozenset[int]
    total: int
    version: int | None = None

    kind = "a norm"
    optional = "shard"  # it says itself that one is needed

    def __post_init__(self) -> None:
        Value.__post_init__(self)
        if self.total % self.layers or not self.shards:
            raise RuleError(SAYS("no norm", owner="Scalar", layers=self.layers, shards=self.shards, total=self.total))

    @property
    def layer(self) -> int:  # type: ignore[override]  # here it is no field
        """The layer that a collective's record names: a norm is of several."""
        return 0

    def memory(self, costs: Costs = CLASSIC) -> int:
        return 1

    def is_complete(self) -> bool:
        return len(self.shards) == self.total

    def __str__(self) -> str:
        return f"norm of {algebra.norm_text(self)}{step_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class Parked(Value):
    """A copy of a value in another memory, such as the host's: it takes no memory of its device."""

    value: Value
    tier: str

    kind = "a parked value"

    def __post_init__(self) -> None:
        if not isinstance(self.value, tuple(KINDS.values())):
            raise RuleError(SAYS("only values parked", got=self.value))
        Value.__post_init__(self)
        object.__setattr__(self, "value", self.value.copied())
        object.__setattr__(self, "tier", str(self.tier))

    @property
    def layer(self) -> int:  # type: ignore[override]  # here it is no field
        return self.value.layer

    @property
    def layers(self) -> int:  # type: ignore[override]
        return self.value.layers

    def memory(self, costs: Costs = CLASSIC) -> int:
        return 0

    def size(self, costs: Costs = CLASSIC) -> int:
        """Elements that it takes of its tier."""
        return self.value.memory(costs)

    def is_complete(self) -> bool:
        return self.value.is_complete()

    def draw(self) -> Any:
        return self.value.draw()

    def __str__(self) -> str:
        return f"{self.value}, on the {self.tier}"


def _least(least: int, name: str) -> Check:
    return lambda value, given, owner: algebra.whole_number(given, name, owner, least=least)


def _chosen(thing: str, count: str, none: Callable[[str], Sentence]) -> Check:
    """Checks numbers of some things, of which a value has `count`; most values need at least one."""

    def check(value: Any, given: object, owner: str) -> frozenset[int]:
        numbers = algebra.numbers(given, getattr(value, count), thing, owner)
        if not numbers and thing != value.optional:
            raise RuleError(none(owner))
        return numbers

    return check


def _flag(value: Any, given: object, owner: str) -> object:
    if type(given) is not bool:
        raise RuleError(SAYS("vocabulary not boolean", owner=owner, got=given))
    return given


Check = Callable[[Any, object, str], object]
"""What a field of a value becomes: from the value, what was given, and the name of its kind in a refusal."""

CHECKS: Mapping[str, Check] = {
    **{name: _least(1, name) for name in ("layers", "total_batches", "total", "of", "shares")},
    "batches": _chosen("batch", "total_batches", lambda owner: SAYS("no batches", owner=owner)),
    "shards": _chosen("shard", "total", lambda owner: SAYS("no shards", owner=owner)),
    "layer": lambda value, given, owner: value._check_layer(given, owner),
    "step": _least(0, "step"),
    "copy": lambda _, given, __: algebra.checked_copy(given),
    "version": lambda value, given, owner: algebra.version(given, value.step, owner),
    "heads": lambda _, given, owner: algebra.part_of(given, "heads", owner),
    "vocabulary": _flag,
    "parts": _chosen("part", "of", lambda owner: SAYS("no parts", owner=owner)),
}
"""By field: its check, after those of the fields that it needs."""

KINDS: Mapping[str, type[Value]] = MappingProxyType(
    {
        cls.__name__: cls
        for cls in (Weight, OptState, Activation, ActivationGrad, WeightGrad, KeyValue, KeyValueGrad)
        + (OuterState, Delta, Scalar)
    }
)

HOLDS: Mapping[str, type[Value]] = {
    "weights": Weight,
    "opt_states": OptState,
    "activations": Activation,
    "grad_activations": ActivationGrad,
    "grad_weights": WeightGrad,
    "parked": Parked,
}
"""The dictionaries of a device, and the kind of value that each holds."""

HOLDS_TOO: Mapping[type[Value], str] = {
    **{KeyValue: "activations", KeyValueGrad: "grad_activations"},
    **{OuterState: "opt_states", Delta: "grad_weights", Scalar: "grad_weights"},
}
"""Kinds that another kind's dictionary holds too."""

CLASSIC_FIELDS: Mapping[type[Value], int] = {
    **dict.fromkeys((Weight, OptState, OuterState, Delta), 5),
    **dict.fromkeys((Activation, ActivationGrad, KeyValue, KeyValueGrad, Scalar), 4),
    **{WeightGrad: 6, Parked: 2},
}
"""How many fields of each kind the classic puzzles use; the others come last, and have defaults."""

ALIKE_IN_A_JOIN = (
    "layer",
    "layers",
    "total",
    "step",
    "batches",
    "total_batches",
    "copy",
    "version",
    "shares",
    "copies",
)

for _cls in CLASSIC_FIELDS:
    _fields = fields(_cls)  # every kind is a dataclass
    _cls._label = attrgetter(*[f.name for f in _fields])
    _made, _cls.copied = constructors(_cls)  # type: ignore[method-assign]  # declared for type checkers
    _cls.made = staticmethod(_made)  # type: ignore[method-assign]
    _cls.joined = tuple(name for name in ALIKE_IN_A_JOIN if name in {f.name for f in _fields})
    if _cls.joined:
        _cls._joined = attrgetter(*_cls.joined)
    _cls._extended = tuple(f.default for f in _fields[CLASSIC_FIELDS[_cls] :])


# --- Sums ---

ONE_LABEL = ("layer", "layers", "total_batches", "step", "copy", "version", "heads", "vocabulary")
"""What activations have in common that meet in a collective, besides batches, parts and tokens."""

ALIKE_PARTS = (*ONE_LABEL, "batches", "of", "shards", "total")


def added(values: Sequence[Value], who: Who = operand) -> Any:
    """The sum of some values of one kind: what `+` makes."""
    if isinstance(values[0], Batched):
        return add_parts(values, who)
    if isinstance(values[0], Scalar):
        return sum_squares(values, who)
    return sum_deltas(values, who) if isinstance(values[0], Delta) else sum_grads(values, who)


def add_parts(values: Sequence[Value], who: Who = operand) -> Batched:
    """The sum of some of its parts, each of which is there once; all of them are the whole."""
    first = values[0]
    assert isinstance(first, Batched)
    if isinstance(first, KeyValue):
        raise RuleError(SAYS("not part of sum", value=first))
    for i, value in enumerate(values):
        require_kind(value, type(first), "each value in this sum")
        require_alike(first, value, ALIKE_PARTS, who, i, "sum")
    if first.of == 1:
        raise RuleError(SAYS("complete sum", value=first))
    union: set[int] = set()
    for value in values:
        parts = value.parts  # type: ignore[attr-defined]  # all are of one kind by now
        if twice := union & parts:
            raise RuleError(_in_both(first, twice))
        union |= parts
    if len(union) == first.of:
        return first.copied(parts=algebra.WHOLE, of=1)
    return first.copied(parts=frozenset(union))


ALIKE_DELTAS = ("layer", "layers", "total", "shards", "step")


def sum_deltas(values: Sequence[Value], who: Who = operand) -> Delta:
    """The sum of the outer gradients of some copies, each there once, that left the same agreed weight."""
    first = require_kind(values[0], Delta, "each value in this sum")
    deltas = [require_kind(value, Delta, "each value in this sum") for value in values]
    marks = [delta.copy for delta in deltas if delta.copy is not None]
    for i, delta in enumerate(deltas):
        require_alike(first, delta, ALIKE_DELTAS, who, i, "sum")
        if marks[i][2:] != marks[0][2:] or marks[i].since != marks[0].since:
            raise RuleError(SAYS("copies of other rounds", who=who(0), first=first, other_who=who(i), other=delta))
    batches = algebra.disjoint_union([mark.batches for mark in marks], "batch", who, "sum each copy once")
    copies = tuple(sorted(copy for delta in deltas for copy in delta.copies))
    return first.copied(copy=marks[0]._replace(batches=batches), copies=copies)


def sum_squares(values: Sequence[Value], who: Who = operand) -> Scalar:
    """The sum of the squares of some layers or shards of one step, each there once."""
    first = require_kind(values[0], Scalar, "each value in this sum")
    norms = [require_kind(value, Scalar, "each value in this sum") for value in values]
    for i, norm in enumerate(norms):
        require_alike(first, norm, ("layers", "step", "version"), who, i, "sum")
    total = lcm(*[norm.total for norm in norms])
    finer = [total // norm.total for norm in norms]
    cut = [frozenset(i * n + j for i in norm.shards for j in range(n)) for norm, n in zip(norms, finer)]
    shards = algebra.disjoint_union(cut, "shard" if total > first.layers else "layer", who, "add each square once")
    return first.copied(shards=shards, total=total)


def _in_both(first: Batched, twice: set[int]) -> Sentence:
    if isinstance(first, KeyValueGrad):
        start = min(first.shards)
        return SAYS("shares in both", shares=f"queries of {algebra.set_text({start + part for part in twice})}")
    if first.total > 1:
        which = "keys" if isinstance(first, Activation) else "gradients through the keys"
        return SAYS("shares in both", shares=f"{which} of {algebra.set_text(twice)}")
    return SAYS("parts in both", parts=algebra.named("part", sorted(twice)))


ALIKE_IN_A_SUM = ("layer", "layers", "total_batches", "total", "shards", "step", "copy")
_summed = attrgetter(*ALIKE_IN_A_SUM, "version")


def sum_grads(grads: Sequence[Value], who: Who = operand) -> WeightGrad:
    """The sum of weight gradients: of one layer and the same shards, and no batch twice."""
    first = require_kind(grads[0], WeightGrad, "each value in this sum")
    label, version = _summed(first), first.version
    for i, grad in enumerate(grads):
        if type(grad) is not WeightGrad or _summed(grad) != label:
            grad = require_kind(grad, WeightGrad, "each value in this sum")
            require_alike(first, grad, ALIKE_IN_A_SUM, who, i, "sum")
            version = _one_version(first, grad, version)
    sets = [grad.batches for grad in grads]  # type: ignore[attr-defined]  # all are WeightGrads by now
    if first.shares > 1:
        every: set[int] = set()
        for batches in sets:
            if twice := every & batches:
                raise RuleError(SAYS("shares in both", shares=algebra.shares_of_batches(twice, first.shares)))
            every |= batches
    union = algebra.disjoint_union(sets, "batch", who, "sum each batch once")
    return first.copied(batches=union, version=version)


def _one_version(first: WeightGrad, grad: WeightGrad, version: int | None) -> int | None:
    """The version of the sum so far, which began with `first`, and of one more gradient; a zero has any."""
    if not grad.batches or grad.version == version:
        return version
    if first.batches or version is not None:
        sum_version, grad_version = (grad.step if number is None else number for number in (version, grad.version))
        raise RuleError(SAYS("versions differ", sum_version=sum_version, grad_version=grad_version))
    return grad.version


# --- Arguments of the wrong kinds ---


def refuse_kinds(call: str, *given: tuple[object, type[Value]]) -> NoReturn:
    """Refuses the last arguments of `call`, each given with the kind it must be of: wrong ones, or a wrong order."""
    names = call[:-1].split(", ")[-len(given) :]
    wrong = {name: pair for name, pair in zip(names, given) if type(pair[0]) is not pair[1]}
    if len(wrong) > 1 and {type(value) for value, _ in wrong.values()} == {kind for _, kind in wrong.values()}:
        swapped = "; ".join(f"{name} is {object_text(value)}" for name, (value, _) in wrong.items())
        raise RuleError(SAYS("arguments swapped", swapped=swapped, call=call))
    name, (value, kind) = next(iter(wrong.items()))
    hint = "; fetch it first" if type(value) is Parked else algebra.order_hint(type(value), kind)
    raise RuleError(SAYS("wrong kind", name=name, kind=kind.kind, value=object_text(value), hint=hint))


SAYS: Sentences = Sentences(
    {
        "no shards": "{owner} has no shards; give at least one, such as shards={{0}}",
        "no layer": "{owner}: layer {layer} does not exist; a model of {layers} layers has {first} to {last} here",
        "no batches": "{owner} has no batches; give at least one, such as batches={{0}}",
        "vocabulary not boolean": "{owner}: vocabulary must be True or False; got {got!r:.60}",
        "no parts": "{owner} has no part; name at least one, such as parts={{0}}",
        "only full values": "only weights, optimizer states and weight gradients have shards; got {value}",
        "full already": "{who} contributes the {value}, which is full already; contribute this rank's shard, and store the full value under a key of its own",
        "shard not held": "this is the {value}, which does not hold all of shard {i} of {n}; gather it first",
        "wrong kind for use": "{use} must be {kind}; got {value}{hint}",
        "values differ": "cannot {verb} values that differ in {differ}: {who} contributes the {first}, {other_who} the {other}{advice}",
        "no norm": "{owner}: it has shards of {layers} layers; got {shards!r:.60} of {total}",
        "outer gradient without copies": "Delta: an outer gradient is of copies; got {got!r:.60}",
        "copies of other batches": "Delta: its copies together have the batches of its mark; got {got!r:.60}",
        "only values parked": "Parked: only a value of the game can be parked; got {got!r}",
        "not part of sum": "this is the {value}; keys and values are not parts of a sum",
        "complete sum": "this is the {value}, which is already complete; only parts of a sum are added",
        "copies of other rounds": "{who} contributes the {first}, {other_who} the {other}; sum copies of one round",
        "shares in both": "both values already include the {shares}; add each once",
        "parts in both": "both values already include {parts} of the sum; add each once",
        "versions differ": "one gradient was made with version {sum_version}, the other with {grad_version}; all of a step use one version",
        "arguments swapped": "the arguments are in the wrong order: {swapped}; write {call}",
        "wrong kind": "{name} must be {kind}; got {value}{hint}",
    }
)

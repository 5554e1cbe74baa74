"""The common part of all values: a label that is checked, frozen and compared, and the algebra of shards.

A value is a label, not a tensor. It belongs to the record of the rank that made it, or to none if made by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, TypeVar

from lib.errors import RuleError
from lib.game.costs import CLASSIC, Costs
from lib.game.kinds import Unequal

from . import algebra
from .algebra import Who, operand
from .label_text import ALIKE_FIRST, DIFFERENCES, order_hint
from .replicas import Copy, checked_copy
from .words import SAYS

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
    joined: ClassVar[tuple[str, ...]]
    """The fields in which values must agree that are joined."""
    _joined: ClassVar[Callable[[Any], tuple[Any, ...]]]
    _extended: ClassVar[tuple[object, ...]]
    """The defaults of the last fields, which the classic puzzles leave as they are."""

    if TYPE_CHECKING:  # both are written by `making.constructors`

        @classmethod
        def made(cls, *label: object, **named: object) -> Self:
            """A value from fields known to be right: what the rules use, without the constructor's checks."""

        def _copied(self, **changed: object) -> Self:
            """An equal value but for some fields, which must be right; it belongs to no record yet."""

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
        """This value as a chalk diagram."""
        from drawing import draw_value

        return draw_value(self)

    def _repr_html_(self) -> str:
        from drawing import svg

        return str(svg(self.draw()))

    def __repr__(self) -> str:
        shown = (_plain_set(x) if isinstance(x, frozenset) else repr(x) for x in self.label())
        return f"{type(self).__name__}({', '.join(shown)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.label()

    def _freeze(self, **checked: object) -> None:
        for name, content in checked.items():
            object.__setattr__(self, name, content)
        object.__setattr__(self, "_recorder", None)

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

    _sum: ClassVar[Callable[..., Any]]
    """What `+` makes; `sums`, which knows all kinds, sets it."""

    def __add__(self, other: Self) -> Self:
        if not isinstance(other, Value):
            return NotImplemented
        total: Self = self._operate("add", (other,), (), lambda: type(self)._sum((self, other)))
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

    def _checked_shards(self) -> dict[str, object]:
        owner = type(self).__name__
        layers = algebra.whole_number(self.layers, "layers", owner, least=1)
        total = algebra.whole_number(self.total, "total", owner, least=1)
        shards = algebra.numbers(self.shards, total, "shard", owner)
        if not shards:
            raise RuleError(SAYS("no shards", owner=owner))
        layer = algebra.number(self.layer, layers, "layer", owner)
        return {"layer": layer, "layers": layers, "shards": shards, "total": total}


class Batched(Summed):
    """A value shaped like an activation: HIDDEN x LENGTH elements for each of its `batches`.

    It may be `parts` of a sum of `of` summands, as large as the whole, and hold `shards` of `total` of its tokens. Of
    attention, it may hold the columns of its `heads`, the i-th part of n.
    """

    __slots__ = ()

    batches: frozenset[int]
    total_batches: int
    step: int
    parts: frozenset[int]
    of: int
    shards: frozenset[int]
    total: int
    copy: Copy | None
    version: int | None
    """The step of the weights that made this, if they are older than its own."""
    heads: tuple[int, int] | None
    vocabulary: bool
    """A cut head made this: shards of scores are of the vocabulary, and an input gradient has sums with it."""

    def is_complete(self) -> bool:
        whole = len(self.parts) == self.of and len(self.shards) == self.total and self.heads is None
        return whole and len(self.batches) == self.total_batches

    def shard(self, i: int, n: int) -> Self:
        """The tokens of share `i` of `n`, all of which this value must hold."""
        return self._operate("shard", (), (i, n), lambda: shard(self, i, n))

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

    def _check_batched(self, first_layer: int, past_layer: int) -> None:
        owner = type(self).__name__
        layers = algebra.whole_number(self.layers, "layers", owner, least=1)
        layer = algebra.whole_number(self.layer, "layer", owner)
        if not first_layer <= layer < layers + past_layer:
            raise RuleError(
                SAYS(
                    "no layer", owner=owner, layer=layer, layers=layers, first=first_layer, last=layers + past_layer - 1
                )
            )
        total = algebra.whole_number(self.total_batches, "total_batches", owner, least=1)
        batches = algebra.numbers(self.batches, total, "batch", owner)
        if not batches:
            raise RuleError(SAYS("no batches", owner=owner))
        self._freeze(layer=layer, layers=layers, batches=batches, total_batches=total)
        step = algebra.whole_number(self.step, "step", owner, least=0)
        self._freeze(step=step, copy=checked_copy(self.copy), version=algebra.version(self.version, step, owner))
        self._freeze(heads=algebra.part_of(self.heads, "heads", owner))
        if type(self.vocabulary) is not bool:
            raise RuleError(SAYS("vocabulary not boolean", owner=owner, got=self.vocabulary))
        for numbers, count, thing in (("parts", "of", "part"), ("shards", "total", "shard")):
            n = algebra.whole_number(getattr(self, count), count, owner, least=1)
            chosen = algebra.numbers(getattr(self, numbers), n, thing, owner)
            if not chosen:
                raise RuleError(SAYS("none of these", owner=owner, thing=thing, numbers=numbers))
            self._freeze(**{numbers: chosen, count: n})


# A new value, which is frozen, becomes number `_number` of the record it belongs to.
set_recorder: Callable[[Value, object], None] = Value.__dict__["_recorder"].__set__
set_number: Callable[[Value, object], None] = Value.__dict__["_number"].__set__


def copy_of(value: V) -> V:
    """An equal value that belongs to no record yet."""
    return value._copied()


def unrecorded(value: V) -> V:
    """The value itself if it belongs to no record yet, otherwise an equal one that does not: what several ranks get."""
    return value if value._recorder is None else value._copied()


def with_fields(value: V, **changed: object) -> V:
    """The same value with other fields, which must be right."""
    return value._copied(**changed)


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
    return with_fields(first, shards=union)


def shard(value: C, i: int, n: int) -> C:
    """Shard `i` of `n` of `value`, which must hold every element of it; of an activation, so many of its tokens."""
    n = algebra.whole_number(n, "number of shards", "shard", least=1)
    i = algebra.number(i, n, "shard", "shard")
    if not algebra.covers(value.shards, value.total, (i,), n):
        raise RuleError(SAYS("shard not held", value=value, i=i, n=n))
    return with_fields(value, shards=frozenset({i}), total=n)


def require_kind(value: object, kind: type[V], use: str) -> V:
    """`value`, if it is of `kind`; otherwise a RuleError that says what it is instead."""
    if type(value) is kind:
        return value
    raise RuleError(
        SAYS(
            "wrong kind for use", use=use, kind=kind.kind, value=object_text(value), hint=order_hint(type(value), kind)
        )
    )


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
                    differ=DIFFERENCES.get(name, name),
                    who=who(0),
                    first=first,
                    other_who=who(i),
                    other=other,
                    advice=ALIKE_FIRST.get((verb, name), ""),
                )
            )


def _plain_set(members: frozenset[int]) -> str:
    return "{" + ", ".join(map(str, sorted(members))) + "}" if members else "set()"

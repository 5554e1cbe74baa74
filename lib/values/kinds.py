"""Defines the kinds of values that a rank can hold, frozen and checked when built.

`layers` and `total_batches` are the model's; shard `i` of `n` is the i-th of n equal parts of a tensor.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from lib.errors import RuleError
from lib.game.costs import CLASSIC, Costs

from . import algebra
from .base import Batched, Sharded, Summed, Value, copy_of
from .label_text import batches_text, more_text, shards_text, share_text, step_text
from .making import constructors
from .replicas import Copy, checked_copy
from .scalar import Scalar
from .words import SAYS


@dataclass(frozen=True, slots=True, repr=False)
class Stepped(Sharded):
    """The fields of what an update changes: `step` 0 before the update, 1 after it."""

    layer: int
    layers: int
    step: int
    shards: frozenset[int] = frozenset({0})
    total: int = 1
    copy: Copy | None = None

    def __post_init__(self) -> None:
        step = algebra.whole_number(self.step, "step", type(self).__name__, least=0)
        self._freeze(step=step, copy=checked_copy(self.copy), **self._checked_shards())

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
        Stepped.__post_init__(self)
        mark = self.copy
        if mark is None or not isinstance(self.copies, (tuple, list)):
            raise RuleError(SAYS("outer gradient without copies", got=self.copies))
        copies = [algebra.numbers(batches, mark.of, "batch", "Delta") for batches in self.copies]
        if algebra.disjoint_union(copies, "batch", algebra.operand, "name each copy once") != mark.batches:
            raise RuleError(SAYS("copies of other batches", got=self.copies))
        self._freeze(copies=tuple(sorted(tuple(sorted(batches)) for batches in copies)))

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

    def __post_init__(self) -> None:
        owner = type(self).__name__
        total_batches = algebra.whole_number(self.total_batches, "total_batches", owner, least=1)
        batches = algebra.numbers(self.batches, total_batches, "batch", owner)
        self._freeze(batches=batches, total_batches=total_batches, **self._checked_shards())
        step = algebra.whole_number(self.step, "step", owner, least=0)
        version = algebra.version(self.version, step, owner)
        shares = algebra.whole_number(self.shares, "shares", owner, least=1)
        self._freeze(step=step, copy=checked_copy(self.copy), version=version, shares=shares)

    def is_complete(self) -> bool:
        return len(self.shards) == self.total and len(self.batches) == self.total_batches

    def __str__(self) -> str:
        label = f"{batches_text(self)}, {shards_text(self)}"
        return f"weight gradient of layer {self.layer}, {label}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class BatchedFields(Batched):
    """The fields of all values that are shaped like an activation."""

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
    heads: tuple[int, int] | None = None
    vocabulary: bool = False

    def __post_init__(self) -> None:
        self._check_batched(0, 0)


@dataclass(frozen=True, slots=True, repr=False)
class Activation(BatchedFields):
    """The input of `layer`; with layer == layers, the output of the last one."""

    kind = "an activation"

    def __post_init__(self) -> None:
        self._check_batched(0, 1)

    def memory(self, costs: Costs = CLASSIC) -> int:
        unequal = costs.unequal
        return self._elements(costs.activation if unequal is None else unequal.input(self.layer), unequal)

    def __str__(self) -> str:
        what = (
            f"input activation of layer {self.layer}" if self.layer < self.layers else "activation after the last layer"
        )
        return f"{what}, {batches_text(self)}{share_text(self)}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class ActivationGrad(BatchedFields):
    """The gradient that `backward(layer)` consumes: the gradient of the layer's output.

    `loss` yields one labelled layers - 1, `backward(l)` one labelled l - 1; label -1 is the gradient of
    the model's input, which nothing consumes.
    """

    kind = "an activation gradient"

    def __post_init__(self) -> None:
        self._check_batched(-1, 0)

    def memory(self, costs: Costs = CLASSIC) -> int:
        unequal = costs.unequal
        return self._elements(costs.activation_grad if unequal is None else unequal.gradient(self.layer), unequal)

    def __str__(self) -> str:
        use = f"for backward({self.layer})" if self.layer >= 0 else "of the model's input, which nothing needs"
        return f"activation gradient {use}, {batches_text(self)}{share_text(self)}{step_text(self)}{more_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class KeyValue(BatchedFields):
    """The keys and values of a layer of attention, for some tokens."""

    kind = "a key-value block"

    def memory(self, costs: Costs = CLASSIC) -> int:
        return self._elements(costs.keys_and_values, costs.unequal)

    def __str__(self) -> str:
        return f"key-value block of layer {self.layer}, {batches_text(self)}{share_text(self)}{step_text(self)}"


@dataclass(frozen=True, slots=True, repr=False)
class KeyValueGrad(BatchedFields):
    """The gradient of keys and values. Its `parts` are summands, one for each later share of queries."""

    kind = "a key-value gradient"

    def memory(self, costs: Costs = CLASSIC) -> int:
        return self._elements(costs.keys_and_values, costs.unequal)

    def __str__(self) -> str:
        label = f"{batches_text(self)}{share_text(self)}{step_text(self)}"
        return f"key-value gradient of layer {self.layer}, {label}"


@dataclass(frozen=True, slots=True, repr=False)
class Parked(Value):
    """A copy of a value in another memory, such as the host's: it takes no memory of its device."""

    value: Value
    tier: str

    kind = "a parked value"

    def __post_init__(self) -> None:
        if not isinstance(self.value, tuple(KINDS.values())):
            raise RuleError(SAYS("only values parked", got=self.value))
        self._freeze(value=copy_of(self.value), tier=str(self.tier))

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
    _fields = fields(_cls)  # type: ignore[arg-type]  # every kind is a dataclass
    _cls._label = attrgetter(*[f.name for f in _fields])
    _made, _cls._copied = constructors(_cls)  # type: ignore[method-assign]  # declared for type checkers
    _cls.made = staticmethod(_made)  # type: ignore[method-assign]
    _cls.joined = tuple(name for name in ALIKE_IN_A_JOIN if name in {f.name for f in _fields})
    if _cls.joined:
        _cls._joined = attrgetter(*_cls.joined)
    _cls._extended = tuple(f.default for f in _fields[CLASSIC_FIELDS[_cls] :])

"""What makes layers, ranks and microbatches unequal: kinds of layers, slow ranks, lengths of microbatches."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from types import MappingProxyType
from typing import Any, NamedTuple

from lib.errors import RuleError

from . import cost_checks
from .words import SAYS

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
        for field, most in (("weight", cost_checks.MAX_PARAMETERS), ("inp", 10**9), ("out", 10**9)):
            size = getattr(given, field)
            if size is not None:
                cost_checks.checked_int(size, f"{owner}: {field}", minimum=1, maximum=most)
        for operation, price in cost_checks.checked_mapping(given.ticks, f"{owner}: ticks").items():
            if operation not in OWN_PRICES or operation not in priced:
                timed = ", ".join(choice for choice in OWN_PRICES if choice in priced)
                raise RuleError(SAYS("kind without price", owner=owner, timed=timed, got=operation))
            cost_checks.checked_int(price, f"{owner}: ticks of {operation}")
        return given


def checked_slow(given: object) -> Mapping[int, Fraction]:
    """How many times slower than the others a rank computes, by rank."""
    if not isinstance(given, Mapping) or not all(type(rank) is int and rank >= 0 for rank in given):
        raise RuleError(SAYS("slow not by rank", got=given))
    slow = {rank: cost_checks.fraction(factor, f"Costs: slow of rank {rank}") for rank, factor in given.items()}
    for rank, factor in slow.items():
        if not 1 <= factor <= cost_checks.MAX_NUMBER:
            raise RuleError(SAYS("impossible slowness", rank=rank, most=cost_checks.MAX_NUMBER, factor=factor))
    return MappingProxyType(slow)


Usual = Any
"""The costs of a game, as far as unequal layers, ranks and microbatches differ from them; costs are made with these."""


class Unequal:
    """The sizes and prices of a game whose layers, ranks or microbatches are not all alike."""

    def __init__(self, costs: Usual, kinds: Sequence[str], lengths: Sequence[Fraction]) -> None:
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


def _kinds(costs: Usual, names: Sequence[str]) -> tuple[Kind, ...]:
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

"""Tensor Redistribution: from any layout of a tensor to any other with the fewest bytes, as named collectives.

Source of the definition: "Sharding Propagation", section Tensor Redistribution, documentation of MindSpore 2.1.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import require_itemsize
from lib.layout.layouts.device_matrix import Ints
from lib.layout.layouts.pieces import Pieces, check
from lib.layout.layouts.tensor_layout import TensorLayout, same_placement

from ..words import SAYS
from .collective_path import collective_path
from .exchange import least_elements, require_same
from .steps import SUM_EXCHANGE, Step, lifted, reductions
from .sum_exchange import least_sum_elements

if TYPE_CHECKING:
    from lib.layout.on_engine import Executed


@dataclass(frozen=True)
class Redistribution:
    """A plan: steps that lead from `source` to `target`, for elements of `itemsize` bytes."""

    source: TensorLayout
    target: TensorLayout
    steps: tuple[Step, ...]
    itemsize: int = 4
    cheapest: bool = True
    """False if a search for named collectives gave up, so that there may be cheaper ones."""

    @cached_property
    def sent(self) -> Ints:
        """Bytes that each device sends."""
        return self._in_bytes(step.sent for step in self.steps)

    @cached_property
    def received(self) -> Ints:
        """Bytes that each device receives."""
        return self._in_bytes(step.received for step in self.steps)

    @property
    def bytes(self) -> int:
        """Bytes moved in total."""
        return int(self.received.sum())

    def run(self, pieces: Pieces) -> Pieces:
        """The target's pieces as numpy arrays, one per device."""
        check(pieces, self.source)
        for step in self.steps:
            pieces = step.run(pieces)
        return pieces

    def on_engine(self, pieces: Pieces, on: str | None = None) -> Executed:
        """The same on `lib.engine`, with one device per piece: the target's pieces, and the meters' readings.

        Raises:
            LayoutError: the pieces do not belong to the source layout.
        """
        from lib.layout.on_engine import execute_steps  # imported here, because planning does not need the engine

        check(pieces, self.source)
        return execute_steps(self.named_steps, self.target, pieces, on)

    @cached_property
    def named_steps(self) -> tuple[Step, ...]:
        """The plan as named collectives, if every device then sends and receives the same amount; otherwise
        unchanged."""
        if not any(step.name in ("exchange", SUM_EXCHANGE) for step in self.steps):
            return self.steps
        named = collective_path(self.source, self.target, at_bound=True).steps
        if not named:
            return self.steps
        if len(named) == 1:
            named = (Step(named[0].name, self.source, self.target),)
            if self.steps[0].name == "exchange" and len(self.steps) == 1:
                return named  # it has the messages of the exchange
        as_named = Redistribution(self.source, self.target, named, self.itemsize)
        same = (as_named.sent == self.sent).all() and (as_named.received == self.received).all()
        return named if same else self.steps

    def explain(self) -> str:
        """The plan as text, with bytes: 'all-to-all [x, -] on 8 to [-, x] on 8: 1,536 bytes ...'."""
        if not self.steps:
            return "nothing moves"
        lines = []
        for step in self.named_steps:
            sent, received = step.sent * self.itemsize, step.received * self.itemsize
            if not received.any():
                lines.append(f"{step}: nothing moves, each device takes its part of what it holds")
                continue
            lines.append(
                f"{step}: {int(received.sum()):,} bytes; a device sends at most {int(sent.max()):,} "
                f"and receives at most {int(received.max()):,}"
            )
        if not self.cheapest:
            lines.append("the search for named collectives gave up; there may be cheaper ones")
        return "\n".join(lines)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the `named_steps`."""
        return tuple(step.name for step in self.named_steps)

    def _in_bytes(self, elements: Iterable[Ints]) -> Ints:
        return sum(elements, np.zeros(self.source.devices, dtype=np.int64)) * self.itemsize


def redistribute(
    source: TensorLayout, target: TensorLayout, itemsize: int = 4, named_only: bool = False
) -> Redistribution:
    """The plan from one layout to another.

    Every device receives exactly the whole values that it needs and does not hold. Partial sums are completed with the
    fewest elements that are possible (`sum_exchange`): by reduce-scatters, all-reduces and an exchange where these
    reach that bound, otherwise by one step that adds up and moves at the same time. With `named_only` the plan is the
    cheapest sequence of named collectives.

    Raises:
        LayoutError: different tensors or devices, a target with partial sums that the source does not have, or an
            itemsize that is not a positive whole number.
    """
    itemsize = require_itemsize(itemsize)
    require_same(source, target)
    if target.partial and not can_become(source, target):
        raise LayoutError(SAYS("sums differ", summands=target.summands, source=source.summands))
    if same_placement(source, target):
        return Redistribution(source, target, (), itemsize)
    if target.partial and source.summands != target.summands:
        way = _some_summed(source, target)
        if named_only and way[-1].name == "exchange":
            way = (*way[:-1], *redistribute(way[-1].source, target, itemsize, True).steps)
        return Redistribution(source, target, way, itemsize)
    if target.partial:
        if named_only and (source.matrix, source.partial) != (target.matrix, target.partial):
            raise LayoutError("no named collective changes which devices hold a partial sum")
        if not named_only:
            return Redistribution(source, target, (Step("exchange", source, target),), itemsize)
    if named_only:
        path = collective_path(source, target)
        return Redistribution(source, target, path.steps, itemsize, path.cheapest)
    return Redistribution(source, target, _least(source, target), itemsize)


def can_become(source: TensorLayout, target: TensorLayout) -> bool:
    """True unless the target is a sum that the source is not: it may keep its summands, or complete some of them."""
    if not target.partial or source.summands == target.summands:
        return True
    return source.matrix == target.matrix and set(target.partial) < set(source.partial)


@lru_cache(maxsize=65536)
def _some_summed(source: TensorLayout, target: TensorLayout) -> tuple[Step, ...]:
    """The cheapest way to add up along some axes, and to move what is still a sum."""
    axes = tuple(axis for axis in source.partial if axis not in target.partial)

    def cost(way: tuple[Step, ...]) -> tuple[int, int]:
        moved = sum(step.total for step in (*way, Step("exchange", way[-1].target, target)))
        return moved, len(way) + (not same_placement(way[-1].target, target))

    way = min(reductions(source, axes), key=cost)
    last = way[-1].target
    return way if same_placement(last, target) else (*way, Step("exchange", last, target))


def _least(source: TensorLayout, target: TensorLayout) -> tuple[Step, ...]:
    if not source.partial:
        return (Step("exchange", source, target),)

    def cost(way: tuple[Step, ...]) -> tuple[int, int]:
        last = way[-1].target
        moved = sum(step.total for step in way) + least_elements(last, target)
        return moved, len(way) + (not same_placement(last, target))

    way = min(reductions(source, source.partial, source.uneven or target.uneven), key=cost)
    last = way[-1].target
    if cost(way)[0] > least_sum_elements(source, target):
        return (Step(SUM_EXCHANGE, source, target),)
    return way if same_placement(last, target) else (*way, Step("exchange", last, target))


def least_bytes(source: TensorLayout, target: TensorLayout, itemsize: int = 4) -> int:
    """The bytes that `redistribute` moves, over all devices, without creating the plan."""
    if same_placement(source, target):
        return 0
    if target.partial or (source.partial and (source.uneven or target.uneven)):
        return sum(step.total for step in redistribute(source, target, itemsize).steps) * itemsize
    return (least_sum_elements if source.partial else least_elements)(source, target) * require_itemsize(itemsize)


__all__ = ["Redistribution", "least_bytes", "lifted", "redistribute"]

"""What a planner may choose from, and what it minimizes.

The choices are the ways to distribute each operator, the layouts in which each source may be stored, and the partial
sums that may flow on. The objective is bytes that all devices send, and computing, where it has a price.

Which of them is best is left to `exact` and `integer_program`. Rejected: letting every partial sum flow on; it flows
only on a way to an addition of two of them, where adding up once instead of twice can pay.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from lib.layout.exchanges import least_table, reductions
from lib.layout.graph import (
    DistributedOperator,
    Graph,
    beside_weights,
    candidates,
    left_in,
    source_layouts,
)
from lib.layout.layouts import Axes, LayoutError, TensorLayout
from lib.layout.operators import GRADS, Operator
from lib.layout.plans import GraphPlan
from lib.layout.redistribution import can_become, least_bytes

# --- Partial sums as layouts: they flow through what is linear, as in DTensor, until they are added up once ---
#
# Linear are sums, differences, products with a factor that is whole along the axis, and what only rearranges.

REARRANGING = ("negative", "transpose", "reshape", "reduce_sum", "reduce_mean", "slice", "pad", "repeat")
TOGETHER = ("add", "subtract", "concat")
"""Kinds that are linear in all inputs together."""
FIRST = (*REARRANGING, *GRADS, "softmax_grad", "divide", "scatter", "gather")
"""Kinds that are linear in the first input."""


def linear_in(operator: Operator) -> list[tuple[int, ...]]:
    """The inputs in which an operator is linear: groups that have to be partial together."""
    if operator.kind in TOGETHER:
        return [tuple(range(len(operator.inputs)))]
    if operator.is_product or operator.kind == "multiply":
        return [(place,) for place in range(len(operator.inputs))]
    return [(0,)] if operator.kind in FIRST else []


class PartialSums:
    """Which tensors of a graph may be partial, and the ways to distribute an operator with them."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        possible: set[str] = set()
        for name, op in graph.operators.items():
            if (op.contracted and op.kind != "reduce_max") or self._groups(op, possible):
                possible.add(name)
        self.joins = {
            name
            for name, op in graph.operators.items()
            if op.kind in ("add", "subtract") and len(set(op.inputs)) > 1 and self._groups(op, possible)
        }
        """Operators that add two partial sums."""
        self.flowing: set[str] = set()
        """Tensors that may stay partial: somewhere behind them is such an addition."""
        for op in reversed(graph.operators.values()):
            if op.name in self.joins or op.name in self.flowing:
                for group in self._groups(op, possible):
                    self.flowing |= {op.inputs[place] for place in group} & possible
        wanted = {*graph.results, *graph.pins, *graph.outs, *(x for x in graph.shapes if not graph.consumers(x))}
        self.flowing -= wanted
        self.flowing -= {first for name, first in graph.repeats.items() if name not in self.flowing}

    def _groups(self, operator: Operator, possible: set[str]) -> list[tuple[int, ...]]:
        return [g for g in linear_in(operator) if all(operator.inputs[place] in possible for place in g)]

    def ways(self, name: str, ways: Iterable[DistributedOperator]) -> list[DistributedOperator]:
        """These ways, and those that take partial sums or leave them."""
        operator, all_ways = self.graph.operators[name], list(ways)
        groups = self._groups(operator, self.flowing)
        bases = {(way.inputs, way.local): way for way in all_ways}
        for way in bases.values():
            if name in self.flowing and way.local.partial:
                all_ways += self._kept(way)
            for group in groups:
                for axes in _subsets(_unused(way)):
                    all_ways += self._taken(way, group, axes)
        return all_ways

    def _taken(self, way: DistributedOperator, group: Sequence[int], axes: Axes) -> list[DistributedOperator]:
        inputs = tuple(_partial(x, axes) if place in group else x for place, x in enumerate(way.inputs))
        local = _partial(way.local, axes)
        base = DistributedOperator(way.operator, inputs, local, ())
        name = way.operator.name
        pin, out = self.graph.pins.get(name), self.graph.outs.get(name)
        every = [DistributedOperator(way.operator, inputs, local, steps) for steps in reductions(local, local.partial)]
        complete = [reduced for reduced in every if out in (None, reduced.output.splits)]
        if pin is not None:
            complete = [left_in(base, pin, reduced=False)]
        return complete + (self._kept(base) if name in self.flowing else [])

    def _kept(self, way: DistributedOperator) -> list[DistributedOperator]:
        """The same with all summands left, or some of them added up."""
        ways = [DistributedOperator(way.operator, way.inputs, way.local, ())]
        for axes in _subsets(way.local.partial)[:-1]:
            for steps in reductions(way.local, axes):
                ways.append(DistributedOperator(way.operator, way.inputs, way.local, steps))
        return ways


def _subsets(axes: Axes) -> list[Axes]:
    """Those that are not empty; all of them together come last."""
    return [some for n in range(1, len(axes) + 1) for some in combinations(axes, n)]


def _unused(way: DistributedOperator) -> Axes:
    """The axes along which all devices compute the same."""
    layouts = (*way.inputs, way.local)
    used = {axis for layout in layouts for axes in (*layout.tensor_map, layout.partial) for axis in axes}
    sizes = way.local.matrix.shape
    return tuple(axis for axis in range(len(sizes)) if axis not in used and sizes[axis] > 1)


def _partial(layout: TensorLayout, axes: Axes) -> TensorLayout:
    return TensorLayout(layout.shape, layout.matrix, layout.tensor_map, (*layout.partial, *axes), layout.largest)


# --- The choices of a graph: how each operator can be distributed, and where each source can be stored ---


class Choices:
    """What a plan of a graph may choose from, under caps of single tensors."""

    def __init__(self, graph: Graph, caps: Mapping[str, int], scatter: bool) -> None:
        self.graph, self.scatter = graph, scatter
        self.consumers: dict[str, list[tuple[Operator, int]]] = {name: [] for name in graph.shapes}
        for op in graph.operators.values():
            for place, name in enumerate(op.inputs):
                self.consumers[name].append((op, place))
        all_even = graph.uneven is not True and graph.mesh is not None
        self.partial = PartialSums(graph) if scatter and all_even else None
        self.operators: dict[str, list[DistributedOperator]] = {}
        """By operator: the ways to distribute it."""
        for name in graph.operators:
            if name not in self.graph.step.weights:
                first = graph.repeats.get(name)
                self.operators[name] = self._choices(name) if first is None else self.operators[first]
        self.storage_layouts = {name: self._storage_layouts(name) for name in graph.sources}
        """By source: the layouts in which it may be stored."""
        for name, weight in self.graph.step.weights.items():
            self.operators[name] = beside_weights(graph, name, self.storage_layouts[weight])
        self.storage_layouts |= {
            name: self._storage_layouts(name) for name, role in graph.sources.items() if role == "state"
        }
        for name, cap in caps.items():
            self._limit(name, cap)

    def _choices(self, name: str) -> list[DistributedOperator]:
        ways = candidates(self.graph, self.graph.operators[name], self.scatter)
        return self.partial.ways(name, ways) if self.partial else ways

    def way(self, name: str, chosen: DistributedOperator) -> DistributedOperator:
        """A choice of an operator, which may be one of the same operator in the first step of a loop."""
        operator = self.graph.operators[name]
        if chosen.operator is operator:
            return chosen
        return DistributedOperator(operator, chosen.inputs, chosen.local, chosen.reduction)

    def _storage_layouts(self, name: str) -> list[TensorLayout]:
        if name in self.graph.pins:
            return [self.graph.pins[name]]
        layouts = dict.fromkeys(
            choice.inputs[place] for op, place in self.consumers[name] for choice in self.operators.get(op.name, ())
        )
        gradient = self.graph.step.gradients.get(name)
        if gradient is not None:
            layouts.update(dict.fromkeys(choice.output for choice in self.operators[gradient]))
        if self.graph.sources[name] != "state":
            layouts.update(dict.fromkeys(source_layouts(self.graph.shapes[name], self.graph)))
        return list(layouts)

    def _layouts(self, name: str) -> list[TensorLayout]:
        return (
            self.storage_layouts[name]
            if name in self.storage_layouts
            else [choice.output for choice in self.operators[name]]
        )

    def _limit(self, name: str, cap: int) -> None:
        size = self.graph.itemsize

        def fits(layout: TensorLayout) -> bool:
            return layout.elements * size <= cap

        smallest = min(layout.elements for layout in self._layouts(name)) * size
        if name in self.storage_layouts:
            self.storage_layouts[name] = [layout for layout in self.storage_layouts[name] if fits(layout)]
        else:
            self.operators[name] = [choice for choice in self.operators[name] if fits(choice.output)]
        for op, place in self.consumers[name]:
            choices: list[DistributedOperator] = [c for c in self.operators[op.name] if fits(c.inputs[place])]
            if not choices:
                smallest = max(smallest, min(c.inputs[place].elements for c in self.operators[op.name]) * size)
            self.operators[op.name] = choices
            if not choices:
                raise LayoutError(
                    f"'{op.name}' needs more than {cap:,} bytes of '{name}' on each device; "
                    f"the smallest possible is {smallest:,}"
                )
        if not self._layouts(name):
            raise LayoutError(
                f"'{name}' does not fit into {cap:,} bytes on each device; the smallest possible is {smallest:,}"
            )


# --- What a plan minimizes: bytes that all devices send, and computing, where it has a price ---

Table = NDArray[np.float64]
FORBIDDEN = 2.0**50
"""Cost of a move that is not possible. Larger than any sum of bytes, and still exact in a double."""


@dataclass(frozen=True)
class Objective:
    """Bytes. `flops` are the operations of a device in the time of a byte; without them computing costs nothing."""

    flops: int | None = None
    grain: int = 1
    """What computing costs is rounded down to a multiple of this: a search is quicker where costs differ by more."""

    @classmethod
    def of_graph(cls, graph: Graph, flops: int | None) -> Objective:
        """With a grain of about a 4,096th of all computation."""
        total = sum(op.flops({}) for op in graph.operators.values()) // flops if flops else 0
        return cls(flops, 1 << max(0, total.bit_length() - 13))

    def of_operator(self, choice: DistributedOperator, itemsize: int) -> int:
        """What an operator costs: its own collectives, and its computation."""
        return choice.moved * itemsize + self._computing(choice)

    def _computing(self, choice: DistributedOperator) -> int:
        if self.flops is None:
            return 0
        return choice.flops * choice.local.devices // self.flops // self.grain * self.grain

    def between(self, given: Sequence[TensorLayout], wanted: Sequence[TensorLayout], itemsize: int) -> Table:
        """What it costs to move from each given layout to each wanted one, or FORBIDDEN: given x wanted."""
        table = np.full((len(given), len(wanted)), FORBIDDEN)
        quick = [[not layout.partial for layout in ends] for ends in (given, wanted)]
        rows, columns = ([layout for layout, yes in zip(*side) if yes] for side in zip((given, wanted), quick))
        if rows and columns:
            table[np.ix_(*quick)] = least_table(rows, columns) * itemsize
        for i, a in enumerate(given):
            for j, b in enumerate(wanted):
                if not (quick[0][i] and quick[1][j]) and can_become(a, b):
                    table[i, j] = least_bytes(a, b, itemsize)
        return table

    def of_plan(self, plan: GraphPlan) -> int:
        """What a plan costs."""
        return plan.bytes + sum(map(self._computing, plan.operators.values()))


BYTES = Objective()

"""Partial sums as layouts: they flow through what is linear, as in DTensor, until they are added up once.

Linear are sums, differences, products with a factor that is whole along the axis, and what only rearranges. An operator
keeps its summands, or takes other devices' summands, only where that can pay: on a way to an addition of two of them.
"""

from collections.abc import Iterable, Sequence
from itertools import combinations

from lib.layout.layouts.tensor_layout import Axes, TensorLayout
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph
from lib.layout.program.operators import GRADS, Operator
from lib.layout.program.pins import left_in
from lib.layout.redistribution.steps import reductions

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

"""The exact planner: of all ways to place a graph, one that moves the fewest bytes under a cap on memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

import numpy as np

from .candidates import candidates, even_layouts
from .capped import least
from .distributed import DistributedOperator
from .elimination import Table
from .errors import LayoutError
from .exchange import least_elements
from .graph import Graph
from .graph_plan import GraphPlan
from .tensor_layout import TensorLayout


def plan(
    graph: Graph,
    memory_cap: int | None = None,
    tensor_caps: Mapping[str, int] | None = None,
    scatter: bool = True,
) -> GraphPlan:
    """The plan that moves the fewest bytes: redistribution on all edges and the operators' own collectives.

    Configured operators keep their strategies. Every other operator may have any of its `candidates`, every
    source any even layout or one that a consumer wants. Each device may hold `memory_cap` bytes (as
    `GraphPlan.memory` counts them) and `tensor_caps[name]` bytes of a single tensor. Without `scatter` partial
    sums are always all-reduced.

    Raises:
        LayoutError: a cap names no tensor or cannot be met (with the least that can), or the graph is too
            entangled for an exact plan.
    """
    problem = Problem(graph, tensor_caps or {}, scatter)
    smallest = sum(int(table.min()) for table in problem.memory)
    if memory_cap is not None and memory_cap < smallest:
        raise LayoutError(
            f"no plan fits into {memory_cap:,} bytes on each device; the smallest possible is {smallest:,}"
        )
    return problem.plan(least(problem.costs, problem.memory, problem.pairs, memory_cap))


class Problem:
    """The choices of a graph as numbered variables: costs and memory of each value, costs of pairs, in bytes."""

    def __init__(self, graph: Graph, tensor_caps: Mapping[str, int], scatter: bool) -> None:
        self.graph = graph
        for name in tensor_caps:
            if name not in graph.shapes:
                near = get_close_matches(name, graph.shapes, n=1)
                advice = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(graph.shapes)}"
                raise LayoutError(f"the cap is for a tensor '{name}' that the graph lacks; {advice}")
        self.operators = {op.name: candidates(graph, op, scatter) for op in graph.operators.values()}
        self.homes = {name: self._homes(name) for name in graph.sources}
        for name, cap in tensor_caps.items():
            self._limit(name, cap)
        self.names = [*self.homes, *self.operators]
        self.costs: list[Table] = []
        self.memory: list[Table] = []
        for name in self.names:
            choices = self.operators.get(name, [])
            moved = [choice.moved for choice in choices] if choices else [0] * len(self.homes[name])
            self.costs.append(np.array(moved, dtype=np.float64) * graph.itemsize)
            held = [layout.elements for layout in self._layouts(name)]
            self.memory.append(np.array(held, dtype=np.float64) * graph.itemsize)
        self.pairs = self._pairs()

    def plan(self, chosen: Sequence[int]) -> GraphPlan:
        """The plan of one value for each variable."""
        picked = dict(zip(self.names, chosen))
        operators = {name: choices[picked[name]] for name, choices in self.operators.items()}
        return GraphPlan(self.graph, operators, {name: homes[picked[name]] for name, homes in self.homes.items()})

    def _homes(self, name: str) -> list[TensorLayout]:
        found = dict.fromkeys(
            choice.inputs[place] for op, place in self.graph.consumers(name) for choice in self.operators[op.name]
        )
        found.update(dict.fromkeys(even_layouts(self.graph.shapes[name], self.graph)))
        return list(found)

    def _layouts(self, name: str) -> list[TensorLayout]:
        return self.homes[name] if name in self.homes else [choice.output for choice in self.operators[name]]

    def _limit(self, name: str, cap: int) -> None:
        """Strikes out what holds more than `cap` bytes of a tensor, at home or as an operator's input."""
        size = self.graph.itemsize

        def fits(layout: TensorLayout) -> bool:
            return layout.elements * size <= cap

        smallest = min(layout.elements for layout in self._layouts(name)) * size
        if name in self.homes:
            self.homes[name] = [layout for layout in self.homes[name] if fits(layout)]
        else:
            self.operators[name] = [choice for choice in self.operators[name] if fits(choice.output)]
        for op, place in self.graph.consumers(name):
            choices: list[DistributedOperator] = [c for c in self.operators[op.name] if fits(c.inputs[place])]
            if not choices:
                smallest = max(smallest, min(c.inputs[place].elements for c in self.operators[op.name]) * size)
            self.operators[op.name] = choices
            if not choices:
                raise LayoutError(
                    f"'{op.name}' cannot do with {cap:,} bytes of '{name}' on each device; "
                    f"the smallest possible is {smallest:,}"
                )
        if not self._layouts(name):
            raise LayoutError(
                f"'{name}' does not fit into {cap:,} bytes on each device; the smallest possible is {smallest:,}"
            )

    def _pairs(self) -> dict[tuple[int, int], Table]:
        number = {name: i for i, name in enumerate(self.names)}
        pairs: dict[tuple[int, int], Table] = {}
        tables: dict[tuple[tuple[TensorLayout, ...], tuple[TensorLayout, ...]], Table] = {}
        for op in self.graph.operators.values():
            for place, tensor in enumerate(op.inputs):
                given = tuple(self._layouts(tensor))
                wanted = tuple(choice.inputs[place] for choice in self.operators[op.name])
                if (given, wanted) not in tables:
                    tables[given, wanted] = _edge(given, wanted) * self.graph.itemsize
                u, v = number[tensor], number[op.name]
                table = tables[given, wanted]
                pairs[u, v] = pairs[u, v] + table if (u, v) in pairs else table
        return pairs


def _edge(given: tuple[TensorLayout, ...], wanted: tuple[TensorLayout, ...]) -> Table:
    """Elements moved from each layout to each: given x wanted."""
    rows, columns = list(dict.fromkeys(given)), list(dict.fromkeys(wanted))
    table = np.array([[least_elements(a, b) for b in columns] for a in rows], dtype=np.float64)
    at_row, at_column = {a: i for i, a in enumerate(rows)}, {b: i for i, b in enumerate(columns)}
    return table[np.ix_([at_row[a] for a in given], [at_column[b] for b in wanted])]

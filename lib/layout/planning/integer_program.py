"""The cheapest plan of a graph as an integer program, for graphs that are too entangled for an elimination.

A binary variable for each way to compute an operator and to store a source. For each reader of a tensor, a fraction of
each move from a layout that the tensor may have to one that the reader may need; a move that several readers share is
paid once, by the largest of their fractions. The relaxation is often integral: it is that of Alpa (Zheng et al. 2022)
with its edges, where moves are shared.

scipy has the solver, HiGHS (Huangfu and Hall 2018); it is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from math import inf
from typing import Any, NamedTuple, NoReturn

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout, placement
from lib.layout.program.distributed import DistributedOperator

from .choices import Choices
from .elimination import FORBIDDEN
from .objective import Objective
from .plan import GraphPlan

Terms = dict[int, float]
"""Coefficients by variable."""


class Solved(NamedTuple):
    """The best plan that was found, if any was, and what every plan costs at least."""

    plan: GraphPlan | None
    bound: float


def is_solver_here() -> bool:
    """True if scipy is installed."""
    return find_spec("scipy") is not None


class IntegerProgram:
    """The variables and constraints of the plans of a graph."""

    def __init__(self, choices: Choices, objective: Objective, memory_cap: int | None) -> None:
        self.choices, self.graph, self.objective = choices, choices.graph, objective
        self.size = self.graph.itemsize
        self.costs: list[float] = []
        self.is_whole: list[bool] = []
        self.rows: list[tuple[Terms, float, float]] = []
        self.lives: dict[str, dict[TensorLayout, Terms]] = {}
        """By tensor and layout, the variables of which one is 1 if the tensor has that layout."""
        self.held: Terms = {}
        """Bytes that count under a memory cap, if there is one."""
        self.ways: dict[str, list[tuple[int, DistributedOperator]]] = {}
        for name, layouts in choices.storage_layouts.items():
            self.lives[name] = {layout: {self._variable(): 1.0} for layout in layouts}
            self._one_of(v for terms in self.lives[name].values() for v in terms)
        for name, ways in choices.operators.items():
            self._operator(name, ways)
        for name in self.graph.shapes:
            self._moves(name)
        if memory_cap is not None:
            self._memory(memory_cap)

    def _variable(self, cost: float = 0.0, is_whole: bool = True) -> int:
        self.costs.append(cost)
        self.is_whole.append(is_whole)
        return len(self.costs) - 1

    def _one_of(self, variables: Iterable[int]) -> None:
        self.rows.append((dict.fromkeys(variables, 1.0), 1, 1))

    def _operator(self, name: str, ways: list[DistributedOperator]) -> None:
        cheapest: dict[Any, tuple[float, DistributedOperator]] = {}
        for way in ways:
            cost = float(self.objective.of_operator(way, self.size))
            if (way.inputs, way.output) not in cheapest or cost < cheapest[way.inputs, way.output][0]:
                cheapest[way.inputs, way.output] = cost, way
        self.ways[name] = [(self._variable(cost), way) for cost, way in cheapest.values()]
        self._one_of(v for v, _ in self.ways[name])
        leaves: dict[TensorLayout, Terms] = {}
        for v, way in self.ways[name]:
            leaves.setdefault(way.output, {})[v] = 1.0
        self.lives[name] = leaves
        replaced = self.choices.step.replaces.get(name)
        if replaced is not None:
            stored = self.lives[replaced]
            for layout in {**stored, **leaves}:
                minus = dict.fromkeys(stored.get(layout, {}), -1.0)
                self.rows.append(({**leaves.get(layout, {}), **minus}, 0, 0))

    def _moves(self, name: str) -> None:
        """What readers pay for a tensor, phase by phase."""
        readers: dict[int, list[dict[Any, tuple[TensorLayout, Terms]]]] = {}
        for op, place in self.choices.consumers[name]:
            wanted: dict[Any, tuple[TensorLayout, Terms]] = {}
            for v, way in self.ways[op.name]:
                layout = way.inputs[place]
                wanted.setdefault(placement(layout), (layout, {}))[1][v] = 1.0
            readers.setdefault(self.graph.phase(op.name), []).append(wanted)
        given = list(self.lives[name])
        for mine in readers.values():
            layouts = {key: layout for wanted in mine for key, (layout, _) in wanted.items()}
            costs = self.objective.between(given, list(layouts.values()), self.size)
            moves: dict[tuple[int, Any], int] = {}
            for wanted in mine:
                self._reader(name, wanted, list(layouts), costs, moves if len(mine) > 1 else None)

    def _reader(
        self,
        name: str,
        wanted: Mapping[Any, tuple[TensorLayout, Terms]],
        columns: list[Any],
        costs: Any,
        moves: dict[tuple[int, Any], int] | None,
    ) -> None:
        """A fraction of each move; if `moves` are shared, each of those is at least this reader's."""
        leaving: list[Terms] = [dict.fromkeys(terms, -1.0) for terms in self.lives[name].values()]
        arriving: dict[Any, Terms] = {key: dict.fromkeys(terms, -1.0) for key, (_, terms) in wanted.items()}
        for i, terms in enumerate(leaving):
            for key in wanted:
                cost = float(costs[i, columns.index(key)])
                if cost >= FORBIDDEN:
                    continue
                v = self._variable(0.0 if moves is not None else cost, is_whole=False)
                terms[v] = arriving[key][v] = 1.0
                if moves is not None and cost:
                    if (i, key) not in moves:
                        moves[i, key] = self._variable(cost, is_whole=False)
                    self.rows.append(({moves[i, key]: 1.0, v: -1.0}, 0, inf))
        self.rows += [(terms, 0, 0) for terms in (*leaving, *arriving.values())]

    def _memory(self, cap: int) -> None:
        for name, layouts in self.lives.items():
            if name in self.choices.storage_layouts or self.graph.keeps(name):
                for layout, terms in layouts.items():
                    self.held.update(dict.fromkeys(terms, float(layout.elements * self.size)))
        self.rows.append((self.held, 0, cap))

    def solve(self, seconds: float) -> Solved:
        """The best plan that is found within that time.

        Raises:
            LayoutError: no plan is within the caps; the message has the smallest possible memory.
        """
        done = self._solved(self.costs, seconds)
        if done.status == 2:
            self._refuse(seconds)
        scale = max(1.0, *self.costs)
        bound = 0.0 if done.mip_dual_bound is None else max(0.0, float(done.mip_dual_bound) * scale)
        return Solved(None if done.x is None else self._plan(done.x), bound)

    def _refuse(self, seconds: float) -> NoReturn:
        if self.held:
            *self.rows, (_, _, cap) = self.rows
            least = self._solved([self.held.get(v, 0.0) for v in range(len(self.costs))], seconds)
            if least.status == 0:
                smallest = self._plan(least.x).memory
                raise LayoutError(
                    f"no plan fits into {cap:,} bytes on each device; the smallest possible is {smallest:,}"
                )
        raise LayoutError("no plan meets these caps together with the strategies that are configured; leave some open")

    def _solved(self, costs: list[float], seconds: float) -> Any:
        from scipy.optimize import Bounds, LinearConstraint, milp
        from scipy.sparse import csr_matrix

        starts = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)])
        columns = [v for terms, _, _ in self.rows for v in terms]
        values = [c for terms, _, _ in self.rows for c in terms.values()]
        matrix = csr_matrix((values, columns, starts), shape=(len(self.rows), len(costs)))
        low, high = ([row[i] for row in self.rows] for i in (1, 2))
        return milp(
            np.array(costs) / max(1.0, *costs),
            integrality=self.is_whole,
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(matrix, low, high),
            options={"time_limit": seconds, "mip_rel_gap": 0},
        )

    def _plan(self, values: Any) -> GraphPlan:
        ways = {name: max(mine, key=lambda one: values[one[0]])[1] for name, mine in self.ways.items()}
        stored = {
            name: max(layouts, key=lambda layout: values[next(iter(layouts[layout]))])
            for name, layouts in self.lives.items()
            if name in self.choices.storage_layouts
        }
        operators = {name: ways[name] for name in self.graph.operators}
        return GraphPlan(self.graph, operators, stored, links=self.objective.links)

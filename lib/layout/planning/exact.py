"""Exact planning: of all ways to place a graph, one that moves the fewest bytes under memory caps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.checks import nearest_name, require_int
from lib.layout.layouts.tensor_layout import Placement, TensorLayout, placement
from lib.layout.program.candidates import beside_weights, candidates, even_layouts
from lib.layout.program.distributed import DistributedOperator
from lib.layout.program.graph import Graph, require_graph
from lib.layout.redistribution.exchange import least_elements, least_table

from .elimination import FORBIDDEN, Table
from .memory_cap import cheapest
from .plan import GraphPlan
from .shared_copies import Copies, shared_copies


def plan(
    graph: Graph,
    memory_cap: int | None = None,
    tensor_caps: Mapping[str, int] | None = None,
    scatter: bool = True,
) -> GraphPlan:
    """The plan that moves the fewest bytes: redistribution on all edges plus the operators' own collectives.

    Configured operators keep their strategies. Every other operator may have any of its `candidates`, every source any
    even layout or one that a consumer needs. Each device may hold `memory_cap` bytes (as `GraphPlan.memory` counts
    them) and `tensor_caps[name]` bytes of a single tensor. Without `scatter`, partial sums are always all-reduced.
    Operators that take a tensor in the same layout share one move of it. If there are too many sets of such moves to
    consider, `GraphPlan.not_shared` names the tensor; the plan may then not be the cheapest.

    Raises:
        LayoutError: a cap names no tensor or cannot be met (the message has the smallest possible value), or the graph
            is too entangled for an exact plan.
    """
    require_graph(graph)
    if memory_cap is not None:
        memory_cap = require_int(memory_cap, "a memory cap is a whole number of bytes per device, such as 40_000")
    problem = PlacementProblem(graph, tensor_caps or {}, scatter)
    smallest = sum(int(table.min()) for table in problem.memory)
    if memory_cap is not None and memory_cap < smallest:
        raise LayoutError(
            f"no plan fits into {memory_cap:,} bytes on each device; the smallest possible is {smallest:,}"
        )
    return problem.plan(cheapest(problem.costs, problem.memory, problem.pairs, memory_cap))


class PlacementProblem:
    """The choices of a graph as numbered variables: costs and memory of each value, costs of pairs, in bytes.

    There is one for the layout in which each tensor is stored and one for how each operator computes. They are the same
    variable where one follows from the other, but not where summands can be reduced in several ways.
    """

    def __init__(self, graph: Graph, tensor_caps: Mapping[str, int], scatter: bool) -> None:
        self.graph = graph
        if not isinstance(tensor_caps, Mapping):
            raise LayoutError(
                f"tensor caps are a dictionary of bytes by name, such as {{'weight2': 4096}}; got {tensor_caps!r}"
            )
        for name, cap in tensor_caps.items():
            require_int(cap, f"the cap of '{name}' is a whole number of bytes, such as 4096")
            if name not in graph.shapes:
                advice = nearest_name(name, graph.shapes)
                raise LayoutError(f"a cap names a tensor '{name}' that is not in the graph; {advice}")
        optimizer = graph.step.weights if graph.step else {}
        self.operators = {
            name: candidates(graph, op, scatter) for name, op in graph.operators.items() if name not in optimizer
        }
        self.homes = {name: self._homes(name) for name in graph.sources}
        for name, weight in optimizer.items():
            self.operators[name] = beside_weights(graph, name, self.homes[weight])
        self.homes |= {name: self._homes(name) for name, role in graph.sources.items() if role == "state"}
        for name, cap in tensor_caps.items():
            self._limit(name, cap)
        self.costs: list[Table] = []
        self.memory: list[Table] = []
        self.pairs: dict[tuple[int, int], Table] = {}
        self._tables: dict[tuple[tuple[int, ...], bytes], Table] = {}
        self._lives: dict[str, tuple[int, list[TensorLayout]]] = {}
        """By tensor: its variable, and the layout that each value means."""
        self._views: dict[tuple[str, int], tuple[int, list[TensorLayout], tuple[Copies, ...]]] = {}
        """By tensor and phase: its variable there, and for each value the layout and the copies that readers share."""
        self.not_shared: list[str] = []
        """Tensors for which not every set of shared copies is a choice, because there are too many."""
        self._computes: dict[str, tuple[int, list[tuple[TensorLayout, ...]]]] = {}
        """By operator: a variable, and the inputs that its values need."""
        for name, homes in self.homes.items():
            self._store(name, homes)
        for name, choices in self.operators.items():
            self._number(name, choices)
        self._add_edges()
        self._add_replacements()

    def plan(self, chosen: Sequence[int]) -> GraphPlan:
        """The plan of one value for each variable."""
        placed = {name: layouts[chosen[v]] for name, (v, layouts) in self._lives.items()}
        operators = {}
        for name, (v, ways) in self._computes.items():
            fitting = (c for c in self.operators[name] if (c.inputs, c.output) == (ways[chosen[v]], placed[name]))
            operators[name] = min(fitting, key=lambda choice: choice.moved)
        return GraphPlan(self.graph, operators, {name: placed[name] for name in self.homes}, tuple(self.not_shared))

    def _variable(self, name: str, moved: Sequence[int], held: Sequence[TensorLayout]) -> int:
        self.costs.append(self._one(np.array(moved, dtype=np.float64) * self.graph.itemsize))
        kept = name in self.homes or self.graph.keeps(name)
        elements = [layout.elements * kept for layout in held]
        self.memory.append(self._one(np.array(elements, dtype=np.float64) * self.graph.itemsize))
        return len(self.costs) - 1

    def _one(self, table: Table) -> Table:
        """The same object for equal tables, so that an elimination recognizes identical layers."""
        return self._tables.setdefault((table.shape, table.tobytes()), table)

    def _number(self, name: str, choices: Sequence[DistributedOperator]) -> None:
        """Variables for an operator: one, or if several choices compute in the same way, one more for its output."""
        ways = list(dict.fromkeys(choice.inputs for choice in choices))
        outputs = [choice.output for choice in choices]
        if len(ways) == len(choices) and len(self.graph.consumers(name)) < 2:
            v = self._variable(name, [choice.moved for choice in choices], outputs)
            self._computes[name], self._lives[name] = (v, ways), (v, outputs)
            return
        u = self._variable(name, [0] * len(ways), [])
        self.memory[u] = self.costs[u]  # zero: the output takes the memory
        self._computes[name] = u, ways
        self._store(name, list(dict.fromkeys(outputs)))
        v, outputs = self._lives[name]
        table = np.full((len(ways), len(outputs)), FORBIDDEN)
        row = {way: i for i, way in enumerate(ways)}
        columns: dict[TensorLayout, list[int]] = {}
        for i, output in enumerate(outputs):
            columns.setdefault(output, []).append(i)
        for choice in choices:
            place = row[choice.inputs], columns[choice.output]
            table[place] = np.minimum(table[place], choice.moved * self.graph.itemsize)
        self.pairs[u, v] = self._one(table)

    def _store(self, name: str, layouts: list[TensorLayout]) -> None:
        """The variable for where a tensor lives, whose values also have the copies that forward's readers share.

        If several operators of backward read it, they have one more variable, of the same layout, for their copies.
        """
        stored = self._view(name, 0, layouts, layouts)
        self._lives[name] = self._views[name, 0][0], stored
        if len(self._readers(name, 1)) < 2:
            self._views[name, 1] = self._views[name, 0][0], stored, ()
            return
        u, (v, again) = self._views[name, 0][0], (len(self.costs), self._view(name, 1, layouts, []))
        number = {layout: i for i, layout in enumerate(layouts)}
        one, two = (np.array([number[layout] for layout in each]) for each in (stored, again))
        self.pairs[u, v] = self._one(np.where(one[:, None] == two, 0.0, FORBIDDEN))

    def _view(self, name: str, phase: int, layouts: list[TensorLayout], held: list[TensorLayout]) -> list[TensorLayout]:
        """A variable for a tensor as the operators of one phase read it; the layouts that its values mean."""
        values, all_of_them = shared_copies(layouts, self._readers(name, phase))
        stored = [layout for layout, _ in values]
        moved = [sum(least_elements(layout, copy) for copy in copies) for layout, copies in values]
        v = self._variable(name, moved, stored if held else [])
        if not held:
            self.memory[v] = self._one(np.zeros(len(stored)))
        self._views[name, phase] = v, stored, tuple(frozenset(map(placement, copies)) for _, copies in values)
        if not all_of_them and name not in self.not_shared:
            self.not_shared.append(name)
        return stored

    def _readers(self, name: str, phase: int) -> list[dict[Placement, TensorLayout]]:
        """For each input of an operator of this phase that the tensor is: the layouts in which it may be needed."""
        return [
            {placement(c.inputs[place]): c.inputs[place] for c in self.operators[op.name]}
            for op, place in self.graph.consumers(name)
            if self.graph.phase(op.name) == phase
        ]

    def _homes(self, name: str) -> list[TensorLayout]:
        found = dict.fromkeys(
            choice.inputs[place]
            for op, place in self.graph.consumers(name)
            for choice in self.operators.get(op.name, ())
        )
        if self.graph.sources[name] != "state":
            found.update(dict.fromkeys(even_layouts(self.graph.shapes[name], self.graph)))
        return list(found)

    def _layouts(self, name: str) -> list[TensorLayout]:
        return self.homes[name] if name in self.homes else [choice.output for choice in self.operators[name]]

    def _limit(self, name: str, cap: int) -> None:
        """Removes the choices that hold more than `cap` bytes of a tensor, as stored or as an operator's input."""
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
                    f"'{op.name}' needs more than {cap:,} bytes of '{name}' on each device; "
                    f"the smallest possible is {smallest:,}"
                )
        if not self._layouts(name):
            raise LayoutError(
                f"'{name}' does not fit into {cap:,} bytes on each device; the smallest possible is {smallest:,}"
            )

    def _add_replacements(self) -> None:
        """What replaces a weight or a state is laid out like it."""
        for operator, source in (self.graph.step.replaces if self.graph.step else {}).items():
            (u, new), (v, old) = self._lives[operator], self._lives[source]
            places = [placement(layout) for layout in old]
            allowed = np.array([[placement(layout) == place for place in places] for layout in new])
            table = np.where(allowed, 0.0, FORBIDDEN)
            self.pairs[u, v] = self._one(self.pairs[u, v] + table if (u, v) in self.pairs else table)

    def _add_edges(self) -> None:
        tables: dict[tuple[tuple[TensorLayout, ...], tuple[Copies, ...], tuple[TensorLayout, ...]], Table] = {}
        for op in self.graph.operators.values():
            v, ways = self._computes[op.name]
            for place, tensor in enumerate(op.inputs):
                # a tensor without a view of its own has a single reader
                u, layouts, copies = self._views.get((tensor, self.graph.phase(op.name)), (*self._lives[tensor], ()))
                between = tuple(layouts), copies, tuple(way[place] for way in ways)
                if between not in tables:
                    tables[between] = _edge_costs(*between) * self.graph.itemsize
                both = self.pairs[u, v] + tables[between] if (u, v) in self.pairs else tables[between]
                self.pairs[u, v] = self._one(both)


def _edge_costs(given: tuple[TensorLayout, ...], copies: tuple[Copies, ...], wanted: tuple[TensorLayout, ...]) -> Table:
    """Elements moved from each given layout to each wanted one, none where a shared copy has it: given x wanted."""
    rows, columns = list(dict.fromkeys(given)), list(dict.fromkeys(wanted))
    table = least_table(rows, columns)
    at_row, at_column = {a: i for i, a in enumerate(rows)}, {b: i for i, b in enumerate(columns)}
    table = table[np.ix_([at_row[a] for a in given], [at_column[b] for b in wanted])]
    places: dict[Placement, list[int]] = {}
    for i, layout in enumerate(wanted):
        places.setdefault(placement(layout), []).append(i)
    for row, shared in zip(table, copies):
        row[[i for copy in shared for i in places.get(copy, ())]] = 0
    return table

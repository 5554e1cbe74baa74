"""Moments as tables: a lower bound of what a device holds at each moment, as a sum over the values of a problem.

Each operator has two moments: it computes, and its output is complete (after a reduction, with its buffers). A shared
copy counts only where an operator takes it, and the buffers of moves do not count. `surplus` adds those of an operator
whose tensors are all placed. What a plan really holds is in `peak`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np

from lib.layout.layouts.tensor_layout import TensorLayout, placement, same_placement
from lib.layout.program.distributed import DistributedOperator
from lib.layout.redistribution.redistribution import redistribute

from .buffers import most_elements
from .elimination import Table
from .live_ranges import ends
from .placement_problem import PlacementProblem

Scope = tuple[int, ...]


class Moments:
    """For each variable a table of values x moments, and tables of pairs of variables at single moments."""

    def __init__(self, problem: PlacementProblem, memory_cap: int | None) -> None:
        self.problem, self.graph, self.size = problem, problem.graph, problem.graph.itemsize
        self.operators = list(self.graph.operators)
        self.count = 2 * len(self.operators) + (memory_cap is not None)
        """Two for each operator; the last one is for a cap on all memory, if there is one."""
        self.sizes = [len(table) for table in problem.costs]
        self.single = [np.zeros((len(table), self.count)) for table in problem.costs]
        self.pairs: dict[Scope, dict[int, Table]] = {}
        if memory_cap is not None:
            for single, memory in zip(self.single, problem.memory):
                single[:, -1] = memory
        self._surplus: dict[tuple[int, ...], float] = {}
        freed = {tensor: i for i, names in enumerate(ends(self.graph).values()) for tensor in names}
        for name in self.graph.sources:
            self._lives(name, 0, freed)
        for i, name in enumerate(self.operators):
            self._computes(i, name)
            self._lives(name, 2 * i + 2, freed)
        self.variables = [self._own_variables(name) for name in self.operators]
        """By operator: the variables of how it computes and where its inputs are."""

    def name(self, moment: int) -> str:
        """What happens then."""
        what = ("computes", "completes its output")[moment % 2]
        return f"'{self.operators[moment // 2]}' {what}"

    def surplus(self, i: int, chosen: Mapping[int, int]) -> float:
        """What operator i holds while it fetches its inputs, beyond its own part of the bound when it computes."""
        key = (i, *(chosen[v] for v in self.variables[i]))
        if key not in self._surplus:
            self._surplus[key] = self._fetching(i, chosen) * self.size
        return self._surplus[key]

    def _lives(self, name: str, start: int, freed: Mapping[str, int]) -> None:
        """A tensor counts from a moment to that in which its last reader computes; without one, to the last moment."""
        v, layouts = self.problem.lives[name]
        stop = 2 * freed[name] + 1 if name in freed else 2 * len(self.operators)
        self.single[v][:, start:stop] += np.array([[layout.elements * self.size] for layout in layouts])

    def _computes(self, i: int, name: str) -> None:
        """An operator's copies of its inputs and its output."""
        v, ways = self.problem.computes[name]
        u, outputs = self.problem.lives[name]
        cheapest: dict[tuple[tuple[TensorLayout, ...], TensorLayout], DistributedOperator] = {}
        for choice in sorted(self.problem.choices.operators[name], key=self.problem.own):
            cheapest.setdefault((choice.inputs, choice.output), choice)
        local = {inputs: choice.local.elements for (inputs, _), choice in cheapest.items()}
        self.single[v][:, 2 * i] += np.array([local.get(way, 0) for way in ways]) * self.size

        def reducing(way: tuple[TensorLayout, ...], output: TensorLayout) -> int:
            choice = cheapest.get((way, output))
            if choice is None:
                return 0
            before = (
                choice.local.elements + int(most_elements(choice.reduction, freed=True).max())
                if choice.reduction
                else 0
            )
            return max(before, output.elements)

        if u == v:
            self.single[v][:, 2 * i + 1] += np.array(list(map(reducing, ways, outputs))) * self.size
        else:
            table = np.array([[reducing(way, output) for output in outputs] for way in ways], dtype=np.float64)
            self._pair((v, u), 2 * i + 1, table * self.size)
        for place, tensor in enumerate(self.graph.operators[name].inputs):
            u, layouts = self.problem.lives[tensor]
            wanted = [0 if self._has_moved(name, place, way) else way[place].elements for way in ways]
            numbers: dict[object, int] = {}
            here = np.array([numbers.setdefault(placement(layout), len(numbers)) for layout in layouts])
            there = np.array([numbers.setdefault(placement(way[place]), len(numbers)) for way in ways])
            table = np.where(here[:, None] != there[None, :], np.array(wanted)[None, :] * self.size, 0.0)
            self._pair((u, v), 2 * i, table)

    def _has_moved(self, name: str, place: int, way: Sequence[TensorLayout]) -> bool:
        """True if an earlier input of the operator is the same tensor, in the same layout."""
        inputs = self.graph.operators[name].inputs
        before = (way[p] for p, other in enumerate(inputs[:place]) if other == inputs[place])
        return any(same_placement(layout, way[place]) for layout in before)

    def _pair(self, names: Scope, moment: int, table: Table) -> None:
        if names[0] == names[1]:
            self.single[names[0]][:, moment] += np.diagonal(table)
        else:
            at = self.pairs.setdefault(names, {})
            at[moment] = at[moment] + table if moment in at else table

    def _own_variables(self, name: str) -> Scope:
        inputs = self.graph.operators[name].inputs
        return tuple(
            dict.fromkeys((self.problem.computes[name][0], *(self.problem.lives[tensor][0] for tensor in inputs)))
        )

    def _fetching(self, i: int, chosen: Mapping[int, int]) -> int:
        """Elements: the most while inputs are moved, less copies and output. Copies that an earlier operator may have
        moved count without buffers."""
        name = self.operators[i]
        v, ways = self.problem.computes[name]
        way, phase = ways[chosen[v]], self.graph.phase(name)
        copies, most = 0, 0
        for place, tensor in enumerate(self.graph.operators[name].inputs):
            u, layouts = self.problem.lives[tensor]
            given, wanted = layouts[chosen[u]], way[place]
            if same_placement(given, wanted) or self._has_moved(name, place, way):
                continue
            first = next(op.name for op, _ in self.graph.consumers(tensor) if self.graph.phase(op.name) == phase)
            if first == name:
                most = max(most, copies + _moving(given, wanted))
            copies += wanted.elements
        local = next(c.local.elements for c in self.problem.choices.operators[name] if c.inputs == way)
        return max(0, most - copies - local)


@lru_cache(maxsize=262144)
def _moving(given: TensorLayout, wanted: TensorLayout) -> int:
    """The most elements that a move takes on a device beside what it starts from."""
    return int(most_elements(redistribute(given, wanted).named_steps).max())


def total(single: Sequence[Table], pairs: Mapping[Scope, Mapping[int, Table]], chosen: Sequence[int]) -> Table:
    """The sum of all tables at these values, by moment."""
    found = np.sum([table[value] for table, value in zip(single, chosen)], axis=0)
    for names, at in pairs.items():
        for moment, table in at.items():
            found[moment] += table[tuple(chosen[v] for v in names)]
    return np.asarray(found)

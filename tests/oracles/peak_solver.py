"""The cheapest plan under a cap on its peak, by constraint programming: a second opinion, with none of the planner's
tables. A literal for each way to compute each operator, for each layout of a source, and for each moved copy."""

from itertools import pairwise
from typing import Any

from lib.layout import Graph, TensorLayout, least_bytes, redistribute
from lib.layout.choices import Choices
from lib.layout.layouts import placement
from lib.layout.plans import ends, most_elements


class PeakModel:
    """All plans of a graph: `moved` are the terms of what they move, `held` those of what a device holds, by moment."""

    def __init__(self, graph: Graph) -> None:
        from ortools.sat.python import cp_model

        self.graph, self.model = graph, cp_model.CpModel()
        self.moved: list[Any] = []
        self.held: dict[tuple[str, str], list[Any]] = {}
        self.wants: dict[tuple[str, int], dict[Any, list[Any]]] = {}
        """By operator and input: by placement, the literals of the ways that need it."""
        self.layouts: dict[tuple[tuple[int, ...], Any], TensorLayout] = {}
        """A layout of each shape and placement."""
        self.lives: dict[str, dict[TensorLayout, Any]] = {}
        """By tensor: the literal of each layout."""
        for name, op in graph.operators.items():
            moments = [f"moves {place}" for place in range(len(op.inputs))]
            self.held |= {(name, moment): [] for moment in (*moments, "computes", "reduces")}
        self.order = list(self.held)
        choices = Choices(graph, {}, scatter=True)
        for name, ways in choices.operators.items():
            self._operator(name, ways)
        for name, homes in choices.storage_layouts.items():
            self.lives[name] = {layout: self.model.new_bool_var("") for layout in homes}
            self.model.add_exactly_one(self.lives[name].values())
        for new, old in (graph.step.replaces if graph.step else {}).items():
            for layout in {*self.lives[new], *self.lives[old]}:
                self.model.add(self.lives[new].get(layout, 0) == self.lives[old].get(layout, 0))
        self._live()
        for name in graph.shapes:
            for phase in range(3):
                self._copies(name, [(o.name, p) for o, p in graph.consumers(name) if graph.phase(o.name) == phase])

    def _operator(self, name: str, ways: list[Any]) -> None:
        cheapest: dict[Any, Any] = {}
        for way in sorted(ways, key=lambda way: way.moved):
            cheapest.setdefault((way.inputs, way.output), way)
        chosen = {key: self.model.new_bool_var("") for key in cheapest}
        self.model.add_exactly_one(chosen.values())
        self.lives[name] = {}
        for output in dict.fromkeys(output for _, output in chosen):
            self.lives[name][output] = sum(taken for (_, made), taken in chosen.items() if made == output)
        size = self.graph.itemsize
        for key, taken in chosen.items():
            way = cheapest[key]
            self.moved.append(way.moved * size * taken)
            self.held[name, "computes"].append(way.local.elements * size * taken)
            if way.reduction:
                most = way.local.elements + int(most_elements(way.reduction).max())
                self.held[name, "reduces"].append(most * size * taken)
            for place, layout in enumerate(way.inputs):
                self.wants.setdefault((name, place), {}).setdefault(placement(layout), []).append(taken)
                self.layouts[layout.shape, placement(layout)] = layout

    def _live(self) -> None:
        """Each tensor from its production to its end. An output counts from the next operator on."""
        last = {tensor: name for name, tensors in ends(self.graph).items() for tensor in tensors}
        for name, literals in self.lives.items():
            start = self.order.index((name, "reduces")) + 1 if name in self.graph.operators else 0
            stop = self.order.index((last[name], "computes")) + 1 if name in last else len(self.order)
            for moment in self.order[start:stop]:
                self.held[moment] += [
                    layout.elements * self.graph.itemsize * taken for layout, taken in literals.items()
                ]

    def _copies(self, tensor: str, readers: list[tuple[str, int]]) -> None:
        """Copies that these readers share: each is moved for the first that needs it, from where the tensor lives or
        from another copy, and held until the last has computed or has moved from it."""
        keys = list(dict.fromkeys(key for reader in readers for key in self.wants[reader]))
        needs = {key: [sum(self.wants[reader].get(key, [])) for reader in readers] for key in keys}
        uses: dict[Any, list[tuple[int, Any]]] = {key: [] for key in keys}
        made: dict[Any, list[tuple[int, Any]]] = {key: [] for key in keys}
        for key in keys:
            here = sum(taken for layout, taken in self.lives[tensor].items() if placement(layout) == key)
            for i, (name, place) in enumerate(readers):
                if key not in self.wants[name, place]:
                    continue
                first = self._true_if(needs[key][i] - here - sum(needs[key][:i]), 1)
                self.model.add(first <= needs[key][i])
                move = self.order.index((name, f"moves {place}"))
                made[key].append((move + 1, first))
                uses[key].append((self.order.index((name, "computes")) + 1, needs[key][i]))
                self._sources(tensor, key, first, (name, place), i, needs, uses)
        for key in keys:
            size = self.layouts[self.graph.shapes[tensor], key].elements * self.graph.itemsize
            for start, first in made[key]:
                times = sorted({start, *(stop for stop, _ in uses[key] if stop > start)})
                for begin, end in pairwise(times):
                    there = self.model.new_bool_var("")
                    for stop, used in uses[key]:
                        if stop >= end:
                            self.model.add(there >= first + used - 1)
                    for moment in self.order[begin:end]:
                        self.held[moment].append(size * there)

    def _sources(
        self, tensor: str, key: Any, first: Any, reader: tuple[str, int], i: int, needs: Any, uses: Any
    ) -> None:
        """From where a reader moves a copy, if it does."""
        wanted, size = self.layouts[self.graph.shapes[tensor], key], self.graph.itemsize
        moment = reader[0], f"moves {reader[1]}"
        sources = []
        for layout, taken in self.lives[tensor].items():
            if placement(layout) != key:
                sources.append((layout, self.model.new_bool_var("")))
                self.model.add(sources[-1][1] <= taken)
        for other in needs:
            if other != key and i:
                layout = self.layouts[self.graph.shapes[tensor], other]
                sources.append((layout, self.model.new_bool_var("")))
                self.model.add(sources[-1][1] <= sum(needs[other][:i]))
                uses[other].append((self.order.index(moment) + 1, sources[-1][1]))
        self.model.add(sum(chosen for _, chosen in sources) == first)
        for layout, chosen in sources:
            self.moved.append(least_bytes(layout, wanted, size) * chosen)
            buffers = int(most_elements(redistribute(layout, wanted).named_steps).max()) * size
            self.held[moment].append(buffers * chosen)

    def _true_if(self, total: Any, least: int) -> Any:
        """A literal that is true if a sum reaches `least`."""
        found = self.model.new_bool_var("")
        self.model.add(total <= least - 1).only_enforce_if(found.negated())
        return found

    def least(self, cap: int | None = None, seconds: float = 60.0) -> int | None:
        """The fewest bytes with a peak of at most `cap`, or None if there is no such plan; without a cap, the least
        peak."""
        from ortools.sat.python import cp_model

        most: Any = self.model.new_int_var(0, 2**50, "") if cap is None else cap
        for terms in self.held.values():
            self.model.add(sum(terms) <= most)
        self.model.minimize(most if cap is None else sum(self.moved))
        solver = cp_model.CpSolver()
        solver.parameters.num_workers = 1
        solver.parameters.max_deterministic_time = seconds
        status = solver.solve(self.model)
        assert status in (cp_model.OPTIMAL, cp_model.INFEASIBLE), "the solver did not finish"
        return round(solver.objective_value) if status == cp_model.OPTIMAL else None

"""The cheapest plan of a graph as an integer program.

A binary variable for each way to compute an operator and to store a source. For each reader of a tensor, a fraction of
each move: from a layout that the tensor may have, or from a copy that an earlier reader may have taken, to a layout
that the reader may need. The relaxation is often integral: it is Alpa's (Zheng et al. 2022) with its edges.

Without a cap on the peak, the moves of a reader are a flow from the tensor's own layout to the reader's, which passes
through other layouts where that costs the same. Where an earlier reader's flow goes, it follows at no cost, up to one
of the copies that these readers have. This is the relaxation of a directed Steiner tree (Wong 1984).
"""

from collections.abc import Hashable, Mapping, Sequence
from math import ceil, gcd, inf
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from lib.layout.errors import LayoutError
from lib.layout.layouts.tensor_layout import TensorLayout, placement
from lib.layout.program.distributed import DistributedOperator

from ..words import SAYS
from .choices import Choices
from .highs import TOLERANCE, LinearProgram, Terms, added
from .objective import FORBIDDEN, Objective, Table
from .peak_rows import Layouts, Move, PeakRows, ReaderMoves
from .plan import GraphPlan

MAX_VARIABLES = 3_000_000
"""About a minute and 3 GB to write down."""


class Solved(NamedTuple):
    """The best plan that was found, if any was, and what every plan costs at least."""

    plan: GraphPlan | None
    bound: int


class IntegerProgram:
    """The variables and constraints of the plans of a graph, under caps on all memory and on the peak.

    Tensors that are `alike` another one are laid out like that one: they have its variables. A program of more than
    MAX_VARIABLES is not completed, and finds no plan.
    """

    def __init__(
        self,
        choices: Choices,
        objective: Objective,
        memory_cap: int | None = None,
        peak: int | None = None,
        alike: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.choices, self.graph, self.objective = choices, choices.graph, objective
        self.size, self.memory_cap, self.peak = self.graph.itemsize, memory_cap, peak
        self.program = LinearProgram()
        self.lives: dict[str, dict[TensorLayout, Terms]] = {}
        """By tensor and layout, the variables of which one is 1 if the tensor has that layout."""
        self.ways: dict[str, list[tuple[int, DistributedOperator]]] = {}
        self.readers: dict[tuple[str, int], list[ReaderMoves]] = {}
        """By tensor and phase, in the order of the program."""
        self.alike = alike = {**alike, **self.graph.repeats}
        self._made: dict[Hashable, ReaderMoves] = {}
        """Moves of readers, by the variables that they connect."""
        self._arcs: dict[tuple[TensorLayout, ...], list[tuple[int, int, float]] | None] = {}
        for name, layouts in choices.storage_layouts.items():
            same = self.lives.get(alike.get(name, ""), {})
            if list(same) == layouts:
                self.lives[name] = same
                continue
            self.lives[name] = {layout: {self.program.variable(): 1.0} for layout in layouts}
            self.program.one_of(v for terms in self.lives[name].values() for v in terms)
        for name, ways in choices.operators.items():
            self._operator(name, ways)
        for name in self.graph.shapes:
            if len(self.program.costs) <= MAX_VARIABLES:
                self._moves(name)
        self.is_complete = len(self.program.costs) <= MAX_VARIABLES
        self.held, self.most_held = self._memory()
        if memory_cap is not None:
            largest = max(self.held.values())  # a solver computes better with numbers near 1
            self.program.row(added(self.held, times=1 / largest), 0, memory_cap / largest)
        self.peaks: PeakRows | None = None
        if peak is not None and self.is_complete:
            variables = self.program, self.lives, self.ways, self.readers
            self.peaks = PeakRows(self.graph, *variables)
            self.peaks.cap(peak)

    def _operator(self, name: str, ways: list[DistributedOperator]) -> None:
        cheapest: dict[Any, tuple[float, DistributedOperator]] = {}
        for way in ways:
            cost = float(self.objective.of_operator(way, self.size))
            if (way.inputs, way.output) not in cheapest or cost < cheapest[way.inputs, way.output][0]:
                cheapest[way.inputs, way.output] = cost, way
        same = self.ways.get(self.alike.get(name, ""), [])
        if [(way.inputs, way.output) for _, way in same] == list(cheapest):
            self.ways[name] = [(v, way) for (v, _), (_, way) in zip(same, cheapest.values())]
            for (v, _), (cost, _) in zip(same, cheapest.values()):
                self.program.costs[v] += cost
            self.lives[name] = self.lives[self.alike[name]]
        else:
            self.ways[name] = [(self.program.variable(cost), way) for cost, way in cheapest.values()]
            self.program.one_of(v for v, _ in self.ways[name])
            self.lives[name] = {}
            for v, way in self.ways[name]:
                self.lives[name].setdefault(way.output, {})[v] = 1.0
        replaced = self.choices.step.replaces.get(name)
        if replaced is not None:
            stored, leaves = self.lives[replaced], self.lives[name]
            for layout in {**stored, **leaves}:
                minus = added(stored.get(layout, {}), times=-1)
                self.program.row({**leaves.get(layout, {}), **minus}, 0, 0)

    def _moves(self, name: str) -> None:
        homes: Layouts = {}
        for layout, terms in self.lives[name].items():
            homes.setdefault(layout if layout.partial else placement(layout), (layout, {}))[1].update(terms)
        for op, place in self.choices.consumers[name]:
            wanted: Layouts = {}
            for v, way in self.ways[op.name]:
                layout = way.inputs[place]
                wanted.setdefault(placement(layout), (layout, {}))[1][v] = 1.0
            readers = self.readers.setdefault((name, self.graph.phase(op.name)), [])
            reader = ReaderMoves(op.name, place, wanted, {}, {})
            earlier = [other for other in readers if other.moves]
            takers = (*earlier, reader)
            ends = (id(self.lives[name]), *((self.ways[taker.operator][0][0], taker.place) for taker in takers))
            if ends[-1] in ends[1:-1]:
                pass  # an operator of a later step of a loop takes the same copy
            elif ends in self._made:
                reader = reader._replace(moves=self._made[ends].moves, made=self._made[ends].made)
                for v, move in reader.moves.items():
                    self.program.costs[v] += move.cost
            else:
                self._made[ends] = self._reader(reader, homes, earlier)
            readers.append(reader)

    def _reader(self, reader: ReaderMoves, homes: Layouts, earlier: Sequence[ReaderMoves]) -> ReaderMoves:
        """Adds the moves of a reader. It has one of them, and only from where the tensor is then."""
        copies: Layouts = {}
        for before in earlier:
            if not before.made:
                self._add_made(before)
            for key, terms in before.made.items():
                copies[key] = before.wanted[key][0], added(copies[key][1] if key in copies else {}, terms)
        if self.peak is None and self._flow(reader, homes, copies, earlier):
            return reader
        arriving = {key: added(terms, times=-1) for key, (_, terms) in reader.wanted.items()}
        dearest = dict.fromkeys(reader.wanted, 0.0)
        columns = [layout for layout, _ in reader.wanted.values()]
        for is_copy, sources in ((False, homes), (True, copies)):
            rows = [layout for layout, _ in sources.values()]
            if not rows:
                continue
            costs = self.objective.between(rows, columns, self.size)
            for (source, (given, terms)), row in zip(sources.items(), costs):
                leaving = added(terms, times=-1)
                for (target, (wanted, _)), cost in zip(reader.wanted.items(), map(float, row)):
                    if cost >= FORBIDDEN or (is_copy and cost >= dearest[target] and source != target):
                        continue  # not possible, or never better than from where the tensor lives
                    v = self.program.variable(cost, is_whole=bool(earlier))
                    leaving[v] = arriving[target][v] = 1.0
                    reader.moves[v] = Move(source, given, target, wanted, is_copy, cost)
                    if source != target:
                        reader.made.setdefault(target, {})[v] = 1.0
                    dearest[target] = dearest[target] if is_copy else max(dearest[target], cost)
                self.program.row(leaving, -inf if earlier else 0, 0)
        for terms in arriving.values():
            self.program.row(terms, 0, 0)
        return reader

    def _flow(self, reader: ReaderMoves, homes: Layouts, copies: Layouts, earlier: Sequence[ReaderMoves]) -> bool:
        """Adds the moves of a reader as a flow from layout to layout, which needs fewer variables.

        False if some move costs more than two others in its place; then the reader needs each move on its own.
        """
        nodes = {**homes, **copies, **reader.wanted}
        layouts = tuple(layout for layout, _ in nodes.values())
        if layouts not in self._arcs:
            self._arcs[layouts] = undivided(self.objective.between(layouts, layouts, self.size))
        arcs, keys = self._arcs[layouts], list(nodes)
        if arcs is None:
            return False
        leaving = {key: added(homes[key][1], times=-1) if key in homes else {} for key in keys}
        for key, terms in self._followed(earlier, leaving).items():
            self.program.row(added(terms, added(copies[key][1], times=-1) if key in copies else {}), -inf, 0)
        for i, j, cost in arcs:
            v = self.program.variable(cost, is_whole=False)
            leaving[keys[i]][v], leaving[keys[j]][v] = 1.0, -1.0
            reader.moves[v] = Move(keys[i], layouts[i], keys[j], layouts[j], False, cost)
        for key, (_, terms) in reader.wanted.items():
            leaving[key] = added(leaving[key], terms)
        for row in leaving.values():
            self.program.row(row, 0, 0)
        return True

    def _add_made(self, reader: ReaderMoves) -> None:
        """Adds the copies of a reader from which later ones may take: where its flow arrives, and where it ends."""
        for key, (_, terms) in reader.wanted.items():
            copy = self.program.variable(is_whole=False)
            arriving = {v: -1.0 for v, move in reader.moves.items() if move.target == key}
            reader.made[key] = {copy: 1.0}
            self.program.row({copy: 1.0, **arriving}, -inf, 0)
            self.program.row({copy: 1.0, **added(terms, times=-1)}, -inf, 0)

    def _followed(self, earlier: Sequence[ReaderMoves], leaving: Mapping[Hashable, Terms]) -> dict[Hashable, Terms]:
        """Adds the part of a flow that follows earlier readers' moves; by layout, what of it ends there."""
        paid: dict[tuple[Hashable, Hashable], Terms] = {}
        for before in earlier:
            for v, move in before.moves.items():
                if move.source != move.target:
                    paid.setdefault((move.source, move.target), {})[v] = -1.0
        ending: dict[Hashable, Terms] = {}
        for (source, target), terms in paid.items():
            v = self.program.variable(is_whole=False)
            self.program.row({v: 1.0, **terms}, -inf, 0)
            leaving[source][v], leaving[target][v] = 1.0, -1.0
            ending.setdefault(source, {})[v], ending.setdefault(target, {})[v] = -1.0, 1.0
        return ending

    def _memory(self) -> tuple[Terms, int]:
        """The bytes that count under a memory cap, and how many there are at most."""
        counted = [
            layouts
            for name, layouts in self.lives.items()
            if name in self.choices.storage_layouts or self.graph.keeps(name)
        ]
        sizes = [{layout: layout.elements * self.size for layout in layouts} for layouts in counted]
        byte_terms = (
            added(terms, times=size[layout])
            for layouts, size in zip(counted, sizes)
            for layout, terms in layouts.items()
        )
        return added(*byte_terms), sum(max(size.values()) for size in sizes)

    def solve(self, effort: int, known: float = inf) -> Solved:
        """The best plan that is found with that effort, if it costs less than `known`."""
        if not self.is_complete:
            return Solved(None, 0)
        step = gcd(*map(int, self.program.costs)) or 1
        costs, most = self._with_memory(step)
        values, least = self.program.solve(costs, effort, known + most)
        if least == inf:
            self._refuse(effort)
        bound = max(0, ceil((least - most) / step * (1 - TOLERANCE) - TOLERANCE) * step)
        return Solved(None if values is None else self._plan(values), bound)

    def _with_memory(self, step: int) -> tuple[list[float], float]:
        """The costs, and less than a step more for what is held, so that of equally cheap plans one is found that
        holds least; and how much more that is at most. Nothing more where the solver would not notice it."""
        costs, most = list(self.program.costs), step / 4
        if not self.held or most / max(1.0, *costs) < TOLERANCE:
            return costs, 0.0
        for v, size in self.held.items():
            costs[v] += most * size / self.most_held
        return costs, most

    def _refuse(self, effort: int) -> NoReturn:
        if self.peaks is not None:
            self._refuse_peak(self.peaks, effort)
        if self.memory_cap is not None:
            self.program.rows.pop()
            least = self.program.solve([self.held.get(v, 0.0) for v in range(len(self.program.costs))], effort)
            if least.values is not None:
                smallest = self._plan(least.values).memory
                raise LayoutError(SAYS("no plan fits", cap=self.memory_cap, smallest=smallest))
        raise LayoutError("no plan meets these caps together with the strategies that are configured; leave some open")

    def _refuse_peak(self, peaks: PeakRows, effort: int) -> NoReturn:
        both = "" if self.memory_cap is None else f" and keeps at most {self.memory_cap:,}"
        what = f"no plan that holds at most {self.peak:,} bytes on each device at any time{both} is possible"
        least = IntegerProgram(self.choices, self.objective, None, 0)
        assert least.peaks is not None
        least.program.most[least.peaks.most] = inf
        costs = least.peaks.as_costs()
        values, smallest = least.program.solve(costs, effort)
        if values is None:
            raise LayoutError(f"{what}; leave more operators open")
        plan = least._plan(values)
        bound = ceil(smallest * (1 - TOLERANCE)) * least.peaks.unit
        if bound >= plan.peak:
            raise LayoutError(SAYS("peak too small", what=what, smallest=plan.peak, when=plan.peak_moment))
        least_found = f"the smallest peak that was found is {plan.peak:,}, when {plan.peak_moment}"
        raise LayoutError(f"{what}; {least_found}; none is below {bound:,}")

    def _plan(self, values: Any) -> GraphPlan:
        chosen = {name: max(ways, key=lambda option: values[option[0]])[1] for name, ways in self.ways.items()}
        stored = {
            name: max(layouts, key=lambda layout: values[next(iter(layouts[layout]))])
            for name, layouts in self.lives.items()
            if name in self.choices.storage_layouts
        }
        operators = {name: self.choices.way(name, chosen[name]) for name in self.graph.operators}
        return GraphPlan(self.graph, operators, stored, rate=self.objective.flops, taken_from=self._sources(values))

    def _sources(self, values: Any) -> dict[tuple[str, int], TensorLayout | None]:
        """Under a cap on the peak: of each input, the copy from which it moves, or None."""
        sources: dict[tuple[str, int], TensorLayout | None] = {}
        for readers in self.readers.values() if self.peak is not None else ():
            for reader in (reader for reader in readers if reader.moves):
                move = reader.moves[max(reader.moves, key=lambda v: values[v])]
                sources[reader.operator, reader.place] = move.given if move.copy else None
        return sources


def undivided(costs: Table) -> list[tuple[int, int, float]] | None:
    """The moves that no two others replace at the same cost, each with its cost; None if two others cost less."""
    apart = np.where((costs == 0) & (costs.T == 0), inf, costs)
    indirect = np.full(costs.shape, inf)
    for first, second in zip(apart.T, apart):
        np.minimum(indirect, first[:, None] + second, out=indirect)
    if (indirect < costs)[~np.eye(len(costs), dtype=bool)].any():
        return None
    left = (costs < np.minimum(indirect, FORBIDDEN)) & ~np.eye(len(costs), dtype=bool)
    return [(int(i), int(j), float(costs[i, j])) for i, j in np.argwhere(left)]

"""The cheapest plan of a graph as an integer program, with caps on memory, solved by HiGHS.

Moves are a flow where no cap on the peak forbids it: with a variable for each move, which would be one formulation for
all, the training step of an attention takes ten times as long. Variables with large reduced costs are left out first:
HiGHS alone takes about twice the time.

What may be chosen is left to `choices`, and which programs are solved with which effort to `exact`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from math import ceil, gcd, inf
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn

import numpy as np

from lib.errors import Sentences
from lib.layout.choices import FORBIDDEN, Choices, Objective, Table
from lib.layout.graph import DistributedOperator, Graph
from lib.layout.layouts import LayoutError, TensorLayout, placement, same_placement
from lib.layout.plans import GraphPlan, ends, most_elements
from lib.layout.redistribution import redistribute

# --- Linear programs with binary variables, solved by HiGHS (Huangfu and Hall 2018) ---
#
# The effort of a search is the number of times that HiGHS asks whether to go on: after each round of cuts, each node
# and each dive. That is the same on every machine, while a limit in seconds is not. HiGHS runs on one thread for that
# reason.

Terms = dict[int, float]
"""Coefficients by variable."""
FIRST_GAP = 0.0005
"""How far above the relaxation, relative to it, solutions are looked for first."""
TOLERANCE = 1e-6
"""How close the solver's bound is, relative to it. Costs are multiples of their greatest common divisor."""
MAX_ITERATIONS = 1000
"""Steps of the simplex method on a relaxation for each step of effort."""


class LinearSolution(NamedTuple):
    """The value of each variable, if any solution was found, and what no solution costs less than: `inf` if there is
    none."""

    values: Any
    bound: float


def is_solver_here() -> bool:
    """True if highspy is installed."""
    return find_spec("highspy") is not None


class LinearProgram:
    """Variables from 0 up to a bound, each with its cost, and constraints on sums of them."""

    def __init__(self) -> None:
        self.costs: list[float] = []
        self.most: list[float] = []
        self.is_whole: list[bool] = []
        self.rows: list[tuple[Terms, float, float]] = []

    def variable(self, cost: float = 0.0, is_whole: bool = True, most: float = 1.0) -> int:
        """The number of a new variable."""
        self.costs.append(cost)
        self.most.append(most)
        self.is_whole.append(is_whole)
        return len(self.costs) - 1

    def row(self, terms: Terms, low: float, high: float = inf) -> None:
        """The sum of these terms is between the two."""
        self.rows.append((terms, low, high))

    def one_of(self, variables: Iterable[int]) -> None:
        """Exactly one of these is 1."""
        self.row(dict.fromkeys(variables, 1.0), 1, 1)

    def solve(self, costs: Sequence[float], effort: int, known: float = inf) -> LinearSolution:
        """The solution of least cost that is found with that effort; none if no solution costs less than `known`.

        In a solution that costs at most `gap` more than the relaxation, no variable with a larger reduced cost is 1
        (Crowder, Johnson and Padberg 1983). So these are left out; if the best solution without them costs more, the
        gap grows and they are asked again.
        """
        scale = max(1.0, *costs)
        problem = self._written(np.array(costs) / scale)
        relaxed = self._solved(problem, np.array(self.most), effort, whole=False)
        if relaxed.bound == inf:
            return LinearSolution(None, inf)
        least, reduced = 0.0, np.zeros(len(costs))
        if relaxed.is_done:
            least, reduced = relaxed.cost, np.where(np.array(self.most) == 1, relaxed.reduced, 0)
        widest = known / scale - least
        if widest <= TOLERANCE * least:
            return LinearSolution(None, known)
        gap = min(least * FIRST_GAP, widest)
        while True:
            kept = reduced <= gap + TOLERANCE
            answer = self._solved(problem, np.where(kept, self.most, 0), effort)
            above = answer.cost - least
            if kept.all() or gap == widest or not answer.is_done or above <= gap + TOLERANCE:
                bound = max(least, answer.bound)
                return LinearSolution(answer.values, (bound if kept.all() else min(bound, least + gap)) * scale)
            gap = min(widest, above if answer.values is not None else max(4 * gap, least, TOLERANCE))

    def _written(self, costs: Any) -> Any:
        """The program as HiGHS takes it, which is written once: searches differ in bounds and in what is whole."""
        import highspy  # here and below: it is optional, and only `exact` needs it

        problem, matrix = highspy.HighsLp(), highspy.HighsSparseMatrix()
        problem.num_col_, problem.num_row_ = len(costs), len(self.rows)
        problem.col_cost_, problem.col_lower_ = costs, np.zeros(len(costs))
        problem.row_lower_, problem.row_upper_ = (np.array([row[i] for row in self.rows]) for i in (1, 2))
        matrix.format_ = highspy.MatrixFormat.kRowwise
        matrix.num_col_, matrix.num_row_ = len(costs), len(self.rows)
        matrix.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self.rows)])
        matrix.index_ = [v for terms, _, _ in self.rows for v in terms]
        matrix.value_ = [c for terms, _, _ in self.rows for c in terms.values()]
        problem.a_matrix_ = matrix
        return problem

    def _solved(self, problem: Any, most: Any, effort: int, whole: bool = True) -> _Answer:
        import highspy

        highs: Any = highspy
        solver = highs.Highs()
        problem.col_upper_ = most
        kinds = highs.HighsVarType.kContinuous, highs.HighsVarType.kInteger
        problem.integrality_ = [kinds[is_whole] for is_whole in self.is_whole] if whole else []
        options = {"output_flag": False, "threads": 1, "mip_rel_gap": 0.0, "mip_abs_gap": 1e-8}
        for option, value in {**options, "simplex_iteration_limit": max(1, effort) * MAX_ITERATIONS}.items():
            solver.setOptionValue(option, value)
        steps = 0

        def count(event: Any) -> None:
            nonlocal steps
            steps += 1
            if steps > effort:
                event.interrupt()

        solver.cbMipInterrupt.subscribe(count)
        solver.passModel(problem)
        solver.run()
        return _Answer.of_solver(highs, solver, whole)


class _Answer(NamedTuple):
    """What the solver says: whether this is the end of the search, the values and cost of the best solution, if there
    is any, and what none costs less than; of a relaxation, the reduced costs."""

    is_done: bool
    values: Any
    cost: float
    bound: float
    reduced: Any = None

    @classmethod
    def of_solver(cls, highs: Any, solver: Any, whole: bool) -> _Answer:
        status, info, solution = solver.getModelStatus(), solver.getInfo(), solver.getSolution()
        if status in (highs.HighsModelStatus.kInfeasible, highs.HighsModelStatus.kUnboundedOrInfeasible):
            return cls(True, None, inf, inf)
        is_done = status == highs.HighsModelStatus.kOptimal
        if info.primal_solution_status != highs.SolutionStatus.kSolutionStatusFeasible:
            return cls(is_done, None, inf, info.mip_dual_bound if whole else 0.0)
        values, cost = np.array(solution.col_value), info.objective_function_value
        return cls(is_done, values, cost, info.mip_dual_bound if whole else cost, np.array(solution.col_dual))


def added(*sums: Terms, times: float = 1.0) -> Terms:
    """The sum of several sums, times a factor."""
    total: Terms = {}
    for terms in sums:
        for v, c in terms.items():
            total[v] = total.get(v, 0.0) + c * times
    return total


# --- A cap on the peak as constraints: what a device holds at every moment, as `plans` counts it ---
#
# An operator has a moment for each input that it moves, one when it computes, and one when its output is reduced. A
# copy is there from the move of the first reader that takes it until the last one has computed, or has moved from it.

Layouts = dict[Hashable, tuple[TensorLayout, Terms]]
"""By placement: a layout, and the variables of which one is 1 if a tensor has it."""


class Move(NamedTuple):
    """A move of a reader: from the layout that the tensor has, or from a `copy` that an earlier reader has taken."""

    source: Hashable
    given: TensorLayout
    target: Hashable
    wanted: TensorLayout
    copy: bool
    cost: float


class ReaderMoves(NamedTuple):
    """An operator and the number of an input, the layouts in which it may need that, and the variables of its moves.

    `made` has, by layout, the terms of which the sum is 1 if this reader is the first to have a copy there.
    """

    operator: str
    place: int
    wanted: Layouts
    moves: dict[int, Move]
    made: dict[Hashable, Terms]


class PeakRows:
    """The constraints of one integer program, without a cap yet. `most` is its variable for the peak, in `unit` bytes.

    `lives` has by tensor and layout, `ways` by operator the variables of which one is 1; `readers` has the moves.
    """

    def __init__(
        self,
        graph: Graph,
        program: LinearProgram,
        lives: Mapping[str, Mapping[TensorLayout, Terms]],
        ways: Mapping[str, Sequence[tuple[int, DistributedOperator]]],
        readers: Mapping[tuple[str, int], Sequence[ReaderMoves]],
    ) -> None:
        self.graph, self.program, self.lives, self.ways = graph, program, lives, ways
        self.moments: dict[tuple[str, str | int], int] = {}
        """The number of each moment: when an operator moves an input, "computes" or "reduces"."""
        for name, op in self.graph.operators.items():
            for doing in (*range(len(op.inputs)), "computes", "reduces"):
                self.moments[name, doing] = len(self.moments)
        self.held: list[Terms] = [{} for _ in self.moments]
        """By moment: the elements that are held besides `tensors`."""
        self.tensors: list[Terms] = [{} for _ in self.moments]
        """By moment: the variables of the sizes of tensors that are there."""
        self.sizes: dict[int, Terms] = {}
        """By such a variable: the elements of its tensor."""
        for name in self.graph.operators:
            self._computes(name)
        for name in self.graph.shapes:
            self._lives(name)
        for (name, _), tensor_readers in readers.items():
            self._copies(name, tensor_readers)
        numbers = {int(c) for terms in (*self.held, *self.sizes.values()) for c in terms.values()}
        per_unit = gcd(*numbers)
        self.unit = per_unit * graph.itemsize
        """Bytes."""
        self.most = program.variable(is_whole=False, most=inf)
        for v, terms in self.sizes.items():
            program.row({**added(terms, times=1 / per_unit), v: -1.0}, 0, 0)
        for terms, whole in zip(self.held, self.tensors):
            program.row({**added(terms, times=1 / per_unit), **whole, self.most: -1.0}, -inf, 0)

    def cap(self, peak: int) -> None:
        """No device may hold more bytes at any time."""
        self.program.most[self.most] = peak // self.unit

    def as_costs(self) -> list[float]:
        """The costs of a program that minimizes the peak."""
        return [float(v == self.most) for v in range(len(self.program.costs))]

    def _hold(self, moment: int, terms: Terms, elements: float) -> None:
        for v, c in terms.items():
            self.held[moment][v] = self.held[moment].get(v, 0.0) + c * elements

    def _computes(self, name: str) -> None:
        for v, way in self.ways[name]:
            self._hold(self.moments[name, "computes"], {v: 1.0}, way.local.elements)
            if way.reduction:
                most = way.local.elements + int(most_elements(way.reduction, freed=True).max())
                self._hold(self.moments[name, "reduces"], {v: 1.0}, most)

    def _lives(self, name: str) -> None:
        """A tensor is there until its last reader has computed; without one, until the end."""
        start = self.moments[name, "reduces"] + 1 if name in self.graph.operators else 0
        last = next((op for op, tensors in ends(self.graph).items() if name in tensors), None)
        stop = len(self.held) if last is None else self.moments[last, "computes"] + 1
        size = self.program.variable(is_whole=False, most=inf)
        elements = (added(terms, times=layout.elements) for layout, terms in self.lives[name].items())
        self.sizes[size] = added(*elements)
        for moment in range(start, stop):
            self.tensors[moment][size] = 1.0

    def _copies(self, name: str, readers: Sequence[ReaderMoves]) -> None:
        """Buffers of moves, and copies."""
        homes = self.lives[name]
        for reader in readers:
            for v, move in reader.moves.items():
                if not (move.copy and move.source == move.target):
                    buffers = _buffers(move.given, move.wanted)
                    self._hold(self.moments[reader.operator, reader.place], {v: 1.0}, buffers)
        wanted = {key: layout for reader in readers for key, (layout, _) in reader.wanted.items()}
        for key, layout in wanted.items():
            here = added(*(terms for home, terms in homes.items() if same_placement(home, layout)))
            for start, stop, terms in self._held_by(key, here, readers):
                for moment in range(start, stop):
                    self._hold(moment, terms, layout.elements)

    def _held_by(self, key: Hashable, here: Terms, readers: Sequence[ReaderMoves]) -> list[tuple[int, int, Terms]]:
        """When a copy is there, and the variable that is 1 if it is."""
        taken, used = [], []
        for reader in readers:
            takes = reader.wanted[key][1] if key in reader.wanted else {}
            move, computes = self.moments[reader.operator, reader.place], self.moments[reader.operator, "computes"]
            moved = {
                v: 1.0
                for v, transfer in reader.moves.items()
                if transfer.copy and transfer.source == key != transfer.target
            }
            if takes:
                taken.append((move + 1, takes))
                used.append((computes + 1, takes))
            if moved:
                used.append((move + 1, moved))
        times = sorted({start for start, _ in taken} | {stop for stop, _ in used})
        spans = []
        for start, stop in pairwise(times):
            before = [terms for moment, terms in taken if moment <= start]
            after = [terms for moment, terms in used if moment >= stop]
            if not before or not after:
                continue
            there = self.program.variable(is_whole=False)
            for first in before:
                for last in after:
                    both = added(first) if first is last else added(first, last)
                    terms = added({there: 1.0}, here, added(both, times=-1))
                    self.program.row(terms, 0.0 if first is last else -1.0)
            spans.append((start, stop, {there: 1.0}))
        return spans


@lru_cache(maxsize=262144)
def _buffers(given: TensorLayout, wanted: TensorLayout) -> int:
    """The most elements that a move takes on a device in addition to the piece that it starts from."""
    if same_placement(given, wanted):
        return 0
    return int(most_elements(redistribute(given, wanted).named_steps).max())


# --- The cheapest plan of a graph as an integer program ---
#
# A binary variable for each way to compute an operator and to store a source. For each reader of a tensor, a fraction
# of each move: from a layout that the tensor may have, or from a copy that an earlier reader may have taken, to a
# layout that the reader may need. The relaxation is often integral: it is Alpa's (Zheng et al. 2022) with its edges.
#
# Without a cap on the peak, the moves of a reader are a flow from the tensor's own layout to the reader's, which passes
# through other layouts where that costs the same. Where an earlier reader's flow goes, it follows at no cost, up to one
# of the copies that these readers have. This is the relaxation of a directed Steiner tree (Wong 1984).

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
        replaced = self.graph.step.replaces.get(name)
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


SAYS = Sentences(
    {
        "no plan fits": "no plan fits into {cap:,} bytes on each device; the smallest possible is {smallest:,}",
        "peak too small": "{what}; the smallest possible peak is {smallest:,}, when {when}",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""

"""Exact planning: of all ways to place a graph, one that moves the fewest bytes under caps.

One planner: an integer program, solved by HiGHS. What propagation finds from the given layouts is the first plan; the
program looks for a cheaper one, so that no plan is worse than propagation's. Dynamic programming over the operators
(variable elimination) needs no solver and is as exact on chains, but its tables grow with every tensor that is read
twice, a cap on memory needs fronts of partial plans, and copies cannot be shared freely; so it was given up.

The effort of a search is counted in the solver's own steps, not in seconds: the same graph has the same plan on every
machine and under every load.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, TypedDict, Unpack

from lib.errors import install_command
from lib.layout.choices import Choices, Objective
from lib.layout.completion import complete
from lib.layout.graph import Graph, require_graph
from lib.layout.integer_program import TOLERANCE, IntegerProgram, Solved, is_solver_here
from lib.layout.layouts import PEAK_WANTED, LayoutError, OutOfEffortError, nearest_name, require_cap
from lib.layout.plans import GraphPlan
from lib.layout.words import SAYS

# --- Tensors of identical layers, which an integer program may lay out alike ---
#
# Two are alike if what surrounds them is: the operators within a few edges, with their settings and shapes (colour
# refinement: Weisfeiler and Leman 1968). So the first and the last of many layers may differ from those in between.

ROUNDS = 3
"""How many edges away two surroundings may not differ."""


def alike(graph: Graph) -> dict[str, str]:
    """By tensor: the first one that is alike, if that is another one."""
    readers: dict[str, list[tuple[str, int]]] = {name: [] for name in graph.shapes}
    for name, op in graph.operators.items():
        for place, tensor in enumerate(op.inputs):
            readers[tensor].append((name, place))
    colors = _numbered({name: _own(graph, name) for name in graph.shapes})
    for _ in range(ROUNDS):
        seen: dict[str, Hashable] = {}
        for name in graph.shapes:
            inputs = graph.operators[name].inputs if name in graph.operators else ()
            beside = tuple(sorted((colors[reader], place) for reader, place in readers[name]))
            seen[name] = colors[name], tuple(colors[tensor] for tensor in inputs), beside
        colors = _numbered(seen)
    first: dict[int, str] = {}
    return {name: first[color] for name, color in colors.items() if first.setdefault(color, name) != name}


def _own(graph: Graph, name: str) -> Hashable:
    """What is known of a tensor alone."""
    given = graph.pins.get(name), name in graph.results
    if name not in graph.operators:
        return graph.sources[name], graph.shapes[name], given
    op = graph.operators[name]
    kept = graph.keeps(name), graph.phase(name), graph.strategies.get(name), graph.outs.get(name)
    return op.kind, op.settings, op.input_letters, op.output_letters, op.input_shapes, op.output_shape, kept, given


def _numbered(seen: dict[str, Hashable]) -> dict[str, int]:
    numbers: dict[Hashable, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in seen.items()}


# --- Plans ---

FLOPS_WANTED = "flops are a whole number of operations that a device computes while it sends a byte, such as 1_000"
EFFORT_WANTED = "effort is a whole number of steps of the solver, such as 2_000"
USUAL_EFFORT = 500
"""About a minute on the largest programs that a plan compares as a whole."""
MAX_QUICK_CHOICES = 5500
"""With more ways to compute all operators, only plans that lay out identical layers alike are compared."""
SHARE_ALIKE = 4
"""Layers are first laid out alike where at least one tensor in so many is like another one."""
USUAL_FLOPS = 1000
"""About the ratio of a GPU's speed to its links'."""


@dataclass(frozen=True)
class Caps:
    """What a device may hold, in bytes: stored and kept tensors in all, everything at any time, single tensors."""

    memory: int | None = None
    peak: int | None = None
    tensors: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, options: PlanOptions) -> Caps:
        memory, peak = options.get("memory_cap"), options.get("peak")
        if memory is not None:
            memory = require_cap(memory, "a memory cap is a whole number of bytes per device, such as 40_000")
        if peak is not None:
            peak = require_cap(peak, PEAK_WANTED)
        return cls(memory, peak, _checked(graph, options.get("tensor_caps")))

    def allow(self, plan: GraphPlan) -> bool:
        """Whether a plan holds no more."""
        sizes = (
            (layout.elements * plan.graph.itemsize, self.tensors[edge.tensor])
            for edge in plan.edges
            if edge.tensor in self.tensors
            for layout in (edge.source, edge.target)
        )
        return (
            (self.memory is None or plan.memory <= self.memory)
            and (self.peak is None or plan.peak <= self.peak)
            and all(size <= cap for size, cap in sizes)
        )


class PlanOptions(TypedDict, total=False):
    """What a plan has to keep to, and what it minimizes. Of all plans without options, one moves the fewest bytes."""

    layouts: Mapping[str, Any] | None
    """Layouts of inputs, weights and results that are fixed, as `Graph.pin` does: {"x": P("data", None)}."""
    memory_cap: int | None
    """Bytes that each device may store and keep, as `GraphPlan.memory` counts them."""
    peak: int | None
    """Bytes that each device may hold at any time, as `GraphPlan.peak` counts them."""
    tensor_caps: Mapping[str, int] | None
    """Bytes of single tensors on each device, by name."""
    scatter: bool
    """If False, partial sums are always all-reduced."""
    every_split: bool
    """Operators may also split parts of axes and leave devices unused (`Graph.on_prime_axes`); the plan is then one of
    that graph. If that search does not end, the plan on the graph's own axes is found too, and the cheaper is taken."""
    flops: int | None
    """Operations of a device in the time in which it sends a byte: computing then costs time too. Without it computing
    is free; but under a `memory_cap` it is 1,000, since a plan would otherwise compute a product several times to save
    memory."""
    effort: int | None
    """Steps of HiGHS. A large graph's identical layers are laid out alike, and other plans compared only if this is
    given; `GraphPlan.tied` says so."""


def plan(graph: Graph, **options: Unpack[PlanOptions]) -> GraphPlan:
    """The plan that moves the fewest bytes: redistribution on all edges plus the operators' own collectives.

    Configured operators keep their strategies. Every other operator may have any of its `candidates`, which use all
    devices, or as many as their sizes allow; every source may have any even layout or one that a consumer needs.
    Operators that take a tensor in the same layout share one move of it. Of dimensions that a reshape merges or
    divides, only the first may be split: a plan that splits several of them together may move less.

    If the search is not done in its effort, `GraphPlan.at_least` has its bound and `GraphPlan.gap` what could be saved.
    What `complete` finds from the layouts that are given is the first plan, so that none is worse.

    Raises:
        LayoutError: a cap names no tensor or cannot be met (the message has the smallest possible value, and for a peak
            the operator), or highspy is not installed.
    """
    require_graph(graph)
    for name in options.keys() - PlanOptions.__annotations__.keys():
        raise LayoutError(f"plan has no option '{name}'; {nearest_name(name, PlanOptions.__annotations__)}")
    if (layouts := options.get("layouts")) is not None:
        graph = graph.pinned(layouts)
    flops = options.get("flops")
    if options.get("every_split"):
        return _with_every_split(graph, {**options, "layouts": None, "every_split": False})
    caps = Caps.of(graph, options)
    if flops is not None and require_cap(flops, FLOPS_WANTED) == 0:
        raise LayoutError(f"{FLOPS_WANTED}; got 0")
    if flops is None and caps.memory is not None:
        flops = USUAL_FLOPS
    if (effort := options.get("effort")) is not None:
        effort = require_cap(effort, EFFORT_WANTED)
    objective = Objective.of_graph(graph, flops)
    first = _propagated(graph, caps, objective)
    if first is not None and not objective.of_plan(first):
        return first
    choices = Choices(graph, caps.tensors, options.get("scatter", True))
    if not is_solver_here():
        raise LayoutError(SAYS("no highspy", install=install_command("exact")))
    return _cheapest(choices, objective, caps, first, effort)


def _cheapest(
    choices: Choices, objective: Objective, caps: Caps, best: GraphPlan | None, effort: int | None
) -> GraphPlan:
    """The cheapest plan: one that lays out identical layers alike first, which is often as cheap as any."""
    graph, steps = choices.graph, USUAL_EFFORT if effort is None else effort
    count = sum(len(ways) for name, ways in choices.operators.items() if name not in graph.repeats)
    same = {name: first for name, first in alike(graph).items() if name not in graph.repeats}
    if SHARE_ALIKE * len(same) >= len(graph.shapes) - len(graph.repeats):
        known = inf if best is None else objective.of_plan(best)
        with suppress(LayoutError):  # what fits under the caps may lay out identical layers in different ways
            solved = IntegerProgram(choices, objective, caps.memory, caps.peak, same).solve(steps, known)
            if solved.plan is not None and objective.of_plan(solved.plan) < known:
                best = solved.plan
        if best is not None and effort is None and count > MAX_QUICK_CHOICES:
            return replace(best, tied=True)
    known = inf if best is None else objective.of_plan(best)
    program = IntegerProgram(choices, objective, caps.memory, caps.peak)
    return _better(best, program.solve(steps, known), objective)


def _propagated(graph: Graph, caps: Caps, objective: Objective) -> GraphPlan | None:
    """What propagation from the given layouts finds, if it is a plan: it keeps them, and fits under the caps."""
    if not graph.pins or graph.strategies:
        return None
    try:
        plan = complete(graph, {}).plan
    except LayoutError:
        return None
    if not caps.allow(plan) or any(plan.layout(name) != layout for name, layout in graph.pins.items()):
        return None
    return replace(plan, rate=objective.flops)


def _with_every_split(graph: Graph, options: PlanOptions) -> GraphPlan:
    """The plan on an axis for each prime factor; if that is not proven, the one on the graph's own axes if cheaper."""
    split: GraphPlan | None = None
    try:
        split = plan(graph.on_prime_axes(), **options)
        if split.at_least is None:
            return split
        bound = split.at_least
    except OutOfEffortError as late:
        bound = late.bound
    try:
        unsplit = plan(graph, **options)
    except LayoutError:
        if split is None:
            raise
        return split
    return _better(split, Solved(unsplit, bound), Objective.of_graph(graph, unsplit.rate))


def _better(best: GraphPlan | None, solved: Solved, objective: Objective) -> GraphPlan:
    if solved.plan is not None and (best is None or objective.of_plan(solved.plan) < objective.of_plan(best)):
        best = solved.plan
    if best is None:
        raise OutOfEffortError(solved.bound)
    cost = objective.of_plan(best)
    if solved.bound >= cost * (1 - TOLERANCE):
        return replace(best, tied=False)
    return replace(best, tied=False, at_least=solved.bound, gap=1 - solved.bound / cost)


def _checked(graph: Graph, caps: Any) -> Mapping[str, int]:
    if caps is not None and not isinstance(caps, Mapping):
        raise LayoutError(f"tensor caps are a dictionary of bytes by name, such as {{'weight2': 4096}}; got {caps!r}")
    for name, cap in (caps or {}).items():
        require_cap(cap, f"the cap of '{name}' is a whole number of bytes, such as 4096")
        if name not in graph.shapes:
            advice = nearest_name(name, graph.shapes)
            raise LayoutError(f"a cap names a tensor '{name}' that is not in the graph; {advice}")
    return caps or {}

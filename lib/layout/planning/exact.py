"""Exact planning: of all ways to place a graph, one that moves the fewest bytes under memory caps."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from time import monotonic
from typing import Any

from lib.extras import install_command
from lib.layout.errors import LayoutError, OutOfTimeError
from lib.layout.layouts.checks import PEAK_WANTED, nearest_name, require_cap
from lib.layout.program.graph import Graph, require_graph
from lib.layout.redistribution.links import Links, require_links

from .alike import alike
from .choices import Choices
from .elimination import TooEntangledError
from .highs import is_solver_here
from .integer_program import IntegerProgram, Solved
from .memory_cap import cheapest
from .objective import Objective
from .placement_problem import PlacementProblem
from .plan import GraphPlan

FLOPS_WANTED = "flops are a whole number of operations that a device computes while it sends a byte, such as 1_000"
USUAL_SECONDS = 60.0
"""How long an integer program may take."""
MAX_QUICK_CHOICES = 5500
"""Up to so many ways to compute all operators, an integer program is asked even if an elimination finds some plan."""
SHARE_ALIKE = 4
"""Layers are first laid out alike where at least one tensor in so many is like another one."""
USUAL_FLOPS = 1000
"""About the ratio of a GPU's speed to its links'."""
MAX_QUICK_ENTRIES = 8_000_000
"""Maximum number of entries of a table as long as there are fewer choices to fall back on."""


def plan(
    graph: Graph,
    memory_cap: int | None = None,
    tensor_caps: Mapping[str, int] | None = None,
    scatter: bool = True,
    links: Links | None = None,
    peak: int | None = None,
    every_split: bool = False,
    layouts: Mapping[str, Any] | None = None,
    flops: int | None = None,
    seconds: float | None = None,
) -> GraphPlan:
    """The plan that moves the fewest bytes: redistribution on all edges plus the operators' own collectives.

    `layouts` fixes the layouts of inputs, weights and results, as `Graph.pin` does: {"x": P("data", None)}. Configured
    operators keep their strategies. Every other operator may have any of its `candidates`, every source any
    even layout or one that a consumer needs. Each device may hold `memory_cap` bytes (as `GraphPlan.memory` counts
    them) and `tensor_caps[name]` bytes of a single tensor. Without `scatter`, partial sums are always all-reduced.
    Operators that take a tensor in the same layout share one move of it. If there are too many sets of such moves to
    consider, `GraphPlan.not_shared` names the tensor; the plan may then not be the cheapest.

    Operators have strategies that use all devices, or as many as their sizes allow. With `every_split` they may split
    parts of axes and leave devices unused as well (`Graph.on_prime_axes`); the plan is then one of that graph. If that
    search is not done in time, the plan on the graph's own axes is found too, and the cheaper one is returned.

    With `peak`, no device holds more than that many bytes at any time, as `GraphPlan.peak` counts them. That takes the
    integer program.

    Computing costs time with `flops`, the operations of a device in the time in which it sends a byte: the plan then
    has the least sum of bytes and of what all devices could send while they compute. Without it computing is free.
    Under a `memory_cap` alone it is 1,000: otherwise a plan would compute a product several times to save memory.

    Where too many choices meet for an elimination, an integer program finds the plan, if scipy is installed. It may
    take so many `seconds`; if it is not done by then, `GraphPlan.at_least` has its bound and `GraphPlan.gap` what could
    be saved. If a graph is large, it lays out identical layers alike, and compares other plans only if `seconds` are
    given; `GraphPlan.tied` says so.

    With `links`, the plan takes the least time instead, and `flops` are the operations of a device in a unit of time.
    Each move is then the quickest that is found: sums go over fast axes first, and detours may be quicker.

    Raises:
        LayoutError: a cap names no tensor or cannot be met (the message has the smallest possible value, and for a peak
            the operator), or the graph is too entangled for an exact plan.
    """
    require_graph(graph)
    if layouts is not None:
        graph = graph.pinned(layouts)
    if every_split:
        if links is not None:
            raise LayoutError("links belong to the axes of a mesh, which every_split divides; leave out one of the two")
        return _with_every_split(graph, memory_cap, tensor_caps, scatter, peak=peak, flops=flops, seconds=seconds)
    if memory_cap is not None:
        memory_cap = require_cap(memory_cap, "a memory cap is a whole number of bytes per device, such as 40_000")
    if peak is not None:
        peak = require_cap(peak, PEAK_WANTED)
    caps = _checked(graph, tensor_caps)
    if links is not None:
        require_links(links, graph.mesh)
    if flops is not None and require_cap(flops, FLOPS_WANTED) == 0:
        raise LayoutError(f"{FLOPS_WANTED}; got 0")
    if flops is None and memory_cap is not None and links is None:
        flops = USUAL_FLOPS
    objective = Objective.of_graph(graph, links, flops)
    choices = Choices(graph, caps, scatter, links)
    problem = _small_enough(choices, objective)
    smallest = sum(int(table.min()) for table in problem.memory)
    if memory_cap is not None and memory_cap < smallest:
        raise LayoutError(
            f"no plan fits into {memory_cap:,} bytes on each device; the smallest possible is {smallest:,}"
        )
    found: GraphPlan | None = None
    why = "a cap on the peak needs an integer program"
    try:
        found = _eliminated(problem, memory_cap)
    except TooEntangledError as entangled:
        why = f"{entangled}; an integer program can"
    if found is not None and peak is not None and found.peak > peak:
        found = None
    every = sum(len(ways) for name, ways in choices.operators.items() if name not in graph.repeats)
    is_small = seconds is not None or every <= MAX_QUICK_CHOICES
    if found is not None and not objective.of_plan(found):
        return replace(found, not_shared=())
    if found is not None and (not found.not_shared or not is_small or not is_solver_here()):
        return found
    if not is_solver_here():
        raise LayoutError(f"{why}: {install_command('exact')}")
    limit = USUAL_SECONDS if seconds is None else seconds
    end = monotonic() + limit
    same = {name: first for name, first in alike(graph).items() if name not in graph.repeats}
    if SHARE_ALIKE * len(same) >= len(graph.shapes) - len(graph.repeats):
        with suppress(LayoutError):  # what fits under the caps may lay out identical layers in different ways
            tied = IntegerProgram(choices, objective, memory_cap, peak, same, end).solve(limit).plan
            if tied is not None and (found is None or objective.of_plan(tied) <= objective.of_plan(found)):
                found = replace(tied, tied=True)
        if found is not None and not is_small:
            return found
    known = inf if found is None else objective.of_plan(found)
    program = IntegerProgram(choices, objective, memory_cap, peak, until=end)
    solved = program.solve(max(0.01, end - monotonic()), known)
    return _better(found, solved, objective)


def _with_every_split(graph: Graph, *caps: Any, **how: Any) -> GraphPlan:
    """The plan on an axis for each prime factor; if that is not proven, the one on the graph's own axes if cheaper."""
    found: GraphPlan | None = None
    try:
        found = plan(graph.on_prime_axes(), *caps, **how)
        if found.at_least is None:
            return found
        bound = found.at_least
    except OutOfTimeError as late:
        bound = late.bound
    try:
        own = plan(graph, *caps, **how)
    except LayoutError:
        if found is None:
            raise
        return found
    return _better(found, Solved(own, bound), Objective.of_graph(graph, None, own.rate))


def _eliminated(problem: PlacementProblem, memory_cap: int | None) -> GraphPlan:
    chosen = cheapest(problem.costs, problem.memory, problem.pairs, memory_cap)
    found = problem.plan(chosen)
    if problem.forbids(chosen):
        raise LayoutError("no plan meets these caps together with the strategies that are configured; leave some open")
    if memory_cap is not None and found.memory > memory_cap:
        raise LayoutError(
            f"no plan fits into {memory_cap:,} bytes on each device; the smallest possible is {found.memory:,}"
        )
    return found


def _better(found: GraphPlan | None, solved: Solved, objective: Objective) -> GraphPlan:
    best = found
    if solved.plan is not None and (found is None or objective.of_plan(solved.plan) < objective.of_plan(found)):
        best = solved.plan
    if best is None:
        raise OutOfTimeError(solved.bound)
    cost = objective.of_plan(best)
    if solved.bound >= cost:
        return replace(best, not_shared=(), tied=False)
    return replace(best, not_shared=(), tied=False, at_least=solved.bound, gap=1 - solved.bound / cost)


def _small_enough(choices: Choices, objective: Objective) -> PlacementProblem:
    """The problem with all ways to share copies; if that is too entangled, with fewer."""
    problem = None
    for copies in (None, 1, 0):
        problem = PlacementProblem(choices, copies, objective)
        if problem.largest_table <= MAX_QUICK_ENTRIES:
            break
    assert problem is not None
    return problem.filled()


def _checked(graph: Graph, caps: Any) -> Mapping[str, int]:
    if caps is not None and not isinstance(caps, Mapping):
        raise LayoutError(f"tensor caps are a dictionary of bytes by name, such as {{'weight2': 4096}}; got {caps!r}")
    for name, cap in (caps or {}).items():
        require_cap(cap, f"the cap of '{name}' is a whole number of bytes, such as 4096")
        if name not in graph.shapes:
            advice = nearest_name(name, graph.shapes)
            raise LayoutError(f"a cap names a tensor '{name}' that is not in the graph; {advice}")
    return caps or {}

"""Redistribution: from any layout of a tensor to any other with the fewest bytes, as named collectives.

Source of the definition: "Sharding Propagation", section Tensor Redistribution, documentation of MindSpore 2.1.
MindSpore's own gathers and slices; here the whole path is searched, so that the cheapest is found.

What a step moves is left to `exchanges`.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations, count, pairwise, permutations
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lib.errors import Sentences
from lib.layout.exchanges import (
    SUM_EXCHANGE,
    Step,
    divides,
    least_elements,
    least_sum_elements,
    least_table,
    lifted,
    reductions,
    require_same,
    steps_with_padding,
    with_axes,
)
from lib.layout.layouts import (
    ITEMSIZE_WANTED,
    Axes,
    DeviceMatrix,
    Ints,
    LayoutError,
    Pieces,
    TensorLayout,
    check,
    parts,
    refined,
    require_int,
    same_placement,
)

if TYPE_CHECKING:
    from lib.layout.execution import Executed


# --- The cheapest sequence of named collectives between two layouts: a shortest path over layouts ---
#
# Steps are slice, all-gather, all-to-all, permute, reduce-scatter and all-reduce, each over whole axes of the device
# matrix. The search is A*: what is left to move from a layout is estimated by the bound, which no steps undercut. On
# the matrix as it is, it is small; if it finds a path at the bound, that is the cheapest. Otherwise the matrix is cut
# into axes of prime size. Two matrices without a common refinement (2x3 and 3x2) are connected by permutes. Up to
# MAX_ARRANGEMENTS layouts, all permutes are tried; above that, only those which swap two axes or end at the target.
#
# After MAX_LAYOUTS_SEARCHED layouts the search gives up, and the path says so: then it is that on the whole axes, or
# gathers everything and slices.
#
# The idea of a search over small steps is from Rink et al. 2021, "Memory-efficient array redistribution through
# portable collective communication".

RESPELLED = ""
"""The step between two descriptions of the same placement: nothing moves."""
MERGEABLE = ("slice", "all-gather")
"""Two consecutive steps of these kinds are one step over several axes."""
MAX_ARRANGEMENTS = 600
"""Up to this many tensor maps of a matrix, every permute is tried."""
MAX_LAYOUTS_SEARCHED = 4000

Neighbour = tuple[str, TensorLayout, int]
"""Name of a step, layout after it, elements moved in total."""


class CollectivePath(NamedTuple):
    """Named collectives one after the other, and whether they are known to be the cheapest."""

    steps: tuple[Step, ...]
    cheapest: bool


class CheapestPath(NamedTuple):
    """The steps of a search, backwards: name, layout before, layout after; None if there are none within its limits."""

    steps: tuple[tuple[str, TensorLayout, TensorLayout], ...] | None
    gave_up: bool
    cost: int = 0


def collective_path(source: TensorLayout, target: TensorLayout, at_bound: bool = False) -> CollectivePath:
    """The steps from `source` to `target` with the fewest bytes in total, then the fewest steps.

    With `at_bound` only steps that move no more than the bound; if none are found, there are no steps.
    """
    steps, cheapest = _cheapest(source, target, at_bound)
    # Results are shared between matrices that differ only in the names of their axes.
    fine = refined(target, source.matrix).matrix, refined(source, target.matrix).matrix
    named = {matrix: matrix for matrix in (*fine, target.matrix, source.matrix)}

    def respelled(layout: TensorLayout) -> TensorLayout:
        matrix = named[layout.matrix]
        return layout if layout.matrix.names == matrix.names else replace(layout, matrix=matrix)

    steps = tuple(Step(step.name, respelled(step.source), respelled(step.target)) for step in steps)
    return CollectivePath(steps, cheapest)


@lru_cache(maxsize=16384)
def _cheapest(source: TensorLayout, target: TensorLayout, at_bound: bool) -> CollectivePath:
    whole_move = Step(SUM_EXCHANGE if source.partial and not target.partial else "exchange", source, target)
    ceiling = whole_move.total if at_bound else None
    whole = _search(source, target, ceiling) if source.matrix == target.matrix else None
    if whole is not None and whole.steps is not None and whole.cost == _left([source], target)[0]:
        return CollectivePath(_steps(whole.steps), True)
    start, goal = refined(source, target.matrix), refined(target, source.matrix)
    if ceiling is None and whole is not None and whole.steps is not None:
        ceiling = whole.cost
    fine = _search(start, goal, ceiling)
    for path in (fine, whole):
        if path is not None and path.steps is not None:
            return CollectivePath(_steps(path.steps), not fine.gave_up)
    return CollectivePath(() if at_bound else _gather_and_slice(start, goal), not fine.gave_up)


def _search(start: TensorLayout, goal: TensorLayout, ceiling: int | None) -> CheapestPath:
    """The path of the fewest elements, then of the fewest steps, through nothing that leads to more than `ceiling`: A*
    with the bound of the rest of the way."""

    best: dict[TensorLayout, tuple[int, int]] = {start: (0, 0)}
    arrivals: dict[TensorLayout, tuple[str, TensorLayout]] = {}
    ticket = count()
    queue = [(0, 0, next(ticket), start)]
    done: set[TensorLayout] = set()
    while queue:
        _, _, _, here = heapq.heappop(queue)
        if here in done:
            continue
        if here == goal:
            return CheapestPath(_back(goal, start, arrivals), False, best[goal][0])
        if len(done) == MAX_LAYOUTS_SEARCHED:
            return CheapestPath(None, True)
        done.add(here)
        cost, steps = best[here]
        offers = [
            (name, there, cost + more)
            for name, there, more in neighbours(here, goal)
            # a goal that is a partial sum is of the same summands, so nothing may be added up on the way
            if there.partial == goal.partial or not goal.partial
            if there not in done and (ceiling is None or cost + more <= ceiling)
        ]
        for (name, there, price), rest in zip(offers, _left([there for _, there, _ in offers], goal)):
            merged = name == RESPELLED or (name in MERGEABLE and here in arrivals and arrivals[here][0] == name)
            offer = price, steps + (0 if merged else 1)
            if (there not in best or offer < best[there]) and (ceiling is None or price + rest <= ceiling):
                best[there], arrivals[there] = offer, (name, here)
                heapq.heappush(queue, (price + rest, offer[1], next(ticket), there))
    return CheapestPath(None, False)


def _left(layouts: Sequence[TensorLayout], goal: TensorLayout) -> list[int]:
    """The bound from each of these layouts to the goal, without padding, which steps in between may cut off."""
    if goal.partial:
        return [least_elements(lifted(layout), lifted(goal), real=True) for layout in layouts]
    if goal.uneven or any(layout.partial or layout.uneven for layout in layouts):
        return [
            (least_sum_elements if layout.partial else least_elements)(layout, goal, real=True) for layout in layouts
        ]
    if not layouts:
        return []
    # What two pieces have in common does not depend on the direction, so one row of the table has all of it.
    sizes = np.array([layout.elements for layout in layouts])
    left: list[int] = (least_table([goal], layouts)[0] + goal.devices * (goal.elements - sizes)).astype(int).tolist()
    return left


def _back(
    goal: TensorLayout, start: TensorLayout, arrivals: dict[TensorLayout, tuple[str, TensorLayout]]
) -> tuple[tuple[str, TensorLayout, TensorLayout], ...]:
    steps = []
    while goal != start:
        name, before = arrivals[goal]
        steps.append((name, before, goal))
        goal = before
    return tuple(steps)


def _steps(backwards: tuple[tuple[str, TensorLayout, TensorLayout], ...]) -> tuple[Step, ...]:
    """The steps in order; consecutive slices and gathers are merged."""
    path: list[Step] = []
    for name, before, after in backwards:
        if name in MERGEABLE and path and path[-1].name == name:
            path[-1] = Step(name, before, path[-1].target)
        elif name != RESPELLED:
            path.append(Step(name, before, after))
    return tuple(reversed(path))


def neighbours(here: TensorLayout, goal: TensorLayout) -> Iterator[Neighbour]:
    """The layouts that one named collective can make of a layout, in a fixed order."""
    yield from _by_collectives(here)
    if here.uneven or goal.uneven:
        yield from steps_with_padding(here, goal)
    yield from _rearranged(here) if _arrangements(here.matrix, here.shape) is not None else _few_permutes(here, goal)
    if goal.matrix != here.matrix and not here.partial:
        across = _arrangements(goal.matrix, goal.shape)
        for tensor_map in across[here.splits] if across is not None else ():
            yield _permuted(here, TensorLayout(goal.shape, goal.matrix, tensor_map))


@lru_cache(maxsize=65536)
def _by_collectives(here: TensorLayout) -> list[Neighbour]:
    """Every step except a permute; these do not depend on the goal."""
    steps: list[Neighbour] = []
    for dim in range(len(here.shape)):
        steps += [*_slices(here, dim), *_all_gathers(here, dim), *_all_to_alls(here, dim)]
    return [*steps, *_reduce_scatters(here), *_all_reduces(here)]


def _slices(here: TensorLayout, dim: int) -> Iterator[Neighbour]:
    """A dimension split over one more axis along which there are copies: nothing moves."""
    used = {axis for axes in (*here.tensor_map, here.partial) for axis in axes}
    for axis in range(len(here.matrix.shape)):
        after = with_axes(here, {dim: here.tensor_map[dim] + (axis,)}) if axis not in used else here
        if axis not in used and divides(here, after, dim):
            yield "slice", after, 0


def _all_gathers(here: TensorLayout, dim: int) -> Iterator[Neighbour]:
    """A dimension without the last axis that splits it: each device receives the pieces of g - 1 others."""
    axes = here.tensor_map[dim]
    if axes:
        g, after = here.matrix.shape[axes[-1]], with_axes(here, {dim: axes[:-1]})
        if divides(after, here, dim):
            yield "all-gather", after, here.devices * here.elements * (g - 1)


def _all_to_alls(here: TensorLayout, dim: int) -> Iterator[Neighbour]:
    """The last axes of a dimension moved to the end of another one: (g-1)/g of every piece moves."""
    axes = here.tensor_map[dim]
    for first in range(len(axes)):
        tail = axes[first:]
        g = prod(here.matrix.shape[axis] for axis in tail)
        for other, there in enumerate(here.tensor_map):
            if other == dim:
                continue
            after = with_axes(here, {dim: axes[:first], other: there + tail})
            if divides(after, here, dim) and divides(here, after, other):
                yield "all-to-all", after, here.devices * here.elements * (g - 1) // g


def _reduce_scatters(here: TensorLayout) -> Iterator[Neighbour]:
    """Summands along one axis added up, and the sum split over that axis: (g-1)/g of every piece moves."""
    for axis in here.partial:
        g = here.matrix.shape[axis]
        left = tuple(other for other in here.partial if other != axis)
        for dim, axes in enumerate(here.tensor_map):
            scattered = with_axes(here, {dim: axes + (axis,)}, left)
            if divides(here, scattered, dim):
                yield "reduce-scatter", scattered, here.devices * here.elements * (g - 1) // g


def _all_reduces(here: TensorLayout) -> Iterator[Neighbour]:
    """Summands along one or several axes added up everywhere: twice (g-1)/g of every piece moves."""
    for n in range(1, len(here.partial) + 1):
        for chosen in combinations(here.partial, n):
            g = prod(here.matrix.shape[axis] for axis in chosen)
            left = tuple(axis for axis in here.partial if axis not in chosen)
            yield "all-reduce", with_axes(here, {}, left), 2 * (g - 1) * here.elements * (here.devices // g)


def _permuted(here: TensorLayout, there: TensorLayout) -> Neighbour:
    """A layout with pieces of the same shape, on this matrix or on the goal's."""
    moved = int((parts(here) != parts(there)).any(axis=1).sum()) * here.elements
    return "permute" if moved else RESPELLED, there, moved


def _few_permutes(here: TensorLayout, goal: TensorLayout) -> Iterator[Neighbour]:
    if here.splits == goal.splits and here.partial == goal.partial == () and here != goal:
        yield _permuted(here, goal)
    sizes = here.matrix.shape
    free = [axis for axis in range(len(sizes)) if axis not in here.partial]
    for a, b in combinations(free, 2):
        swap = {a: b, b: a}
        tensor_map = tuple(tuple(swap.get(axis, axis) for axis in axes) for axes in here.tensor_map)
        if sizes[a] == sizes[b] and tensor_map != here.tensor_map:
            yield _permuted(here, replace(here, tensor_map=tensor_map))


@lru_cache(maxsize=65536)
def _rearranged(here: TensorLayout) -> list[Neighbour]:
    every, summed = _arrangements(here.matrix, here.shape) or {}, set(here.partial)
    return [
        _permuted(here, replace(here, tensor_map=tensor_map))
        for tensor_map in every.get(here.splits, ())
        if tensor_map != here.tensor_map and not summed & {axis for entry in tensor_map for axis in entry}
    ]


@lru_cache(maxsize=256)
def _arrangements(matrix: DeviceMatrix, shape: tuple[int, ...]) -> dict[tuple[int, ...], list[tuple[Axes, ...]]] | None:
    """All tensor maps without partial sums, by their splits; None if there are more than MANY."""
    by_splits: defaultdict[tuple[int, ...], list[tuple[Axes, ...]]] = defaultdict(list)
    total = 0
    for n in range(len(matrix.shape) + 1):
        for order in permutations(range(len(matrix.shape)), n):
            for borders in combinations(range(n + len(shape) - 1), len(shape) - 1) if shape else [()]:
                cuts = [0, *(border - i for i, border in enumerate(borders)), n]
                tensor_map = tuple(order[a:b] for a, b in pairwise(cuts)) if shape else ()
                splits = tuple(prod(matrix.shape[axis] for axis in axes) for axes in tensor_map)
                by_splits[splits].append(tensor_map)
                total += 1
                if total > MAX_ARRANGEMENTS:
                    return None
            if not shape:
                break
    return by_splits


def _gather_and_slice(start: TensorLayout, goal: TensorLayout) -> tuple[Step, ...]:
    """A path that always exists: add up the summands, gather everything everywhere, and slice."""
    steps: list[Step] = []
    if start.partial:
        steps.append(Step("all-reduce", start, start.full()))
        start = start.full()
    whole = TensorLayout(start.shape, start.matrix, ((),) * len(start.shape))
    for name, a, b in (("all-gather", start, whole), ("slice", whole, goal)):
        if not same_placement(a, b):
            steps.append(Step(name, a, b))
    return tuple(steps)


# --- Tensor Redistribution: from any layout of a tensor to any other with the fewest bytes, as named collectives ---


@dataclass(frozen=True)
class Redistribution:
    """A plan: steps that lead from `source` to `target`, for elements of `itemsize` bytes."""

    source: TensorLayout
    target: TensorLayout
    steps: tuple[Step, ...]
    itemsize: int = 4
    cheapest: bool = True
    """False if a search for named collectives gave up, so that there may be cheaper ones."""

    @cached_property
    def sent(self) -> Ints:
        """Bytes that each device sends."""
        return self._in_bytes(step.sent for step in self.steps)

    @cached_property
    def received(self) -> Ints:
        """Bytes that each device receives."""
        return self._in_bytes(step.received for step in self.steps)

    @property
    def bytes(self) -> int:
        """Bytes moved in total."""
        return int(self.received.sum())

    def run(self, pieces: Pieces) -> Pieces:
        """The target's pieces as numpy arrays, one per device."""
        check(pieces, self.source)
        for step in self.steps:
            pieces = step.run(pieces)
        return pieces

    def on_engine(self, pieces: Pieces, on: str | None = None) -> Executed:
        """The same on `lib.engine`, with one device per piece: the target's pieces, and the meters' readings.

        Raises:
            LayoutError: the pieces do not belong to the source layout.
        """
        from lib.layout.execution import execute_steps  # here: planning needs no engine, and it imports us

        check(pieces, self.source)
        return execute_steps(self.named_steps, self.target, pieces, on)

    @cached_property
    def named_steps(self) -> tuple[Step, ...]:
        """The plan as named collectives, if every device then sends and receives the same amount; otherwise
        unchanged."""
        if not any(step.name in ("exchange", SUM_EXCHANGE) for step in self.steps):
            return self.steps
        named = collective_path(self.source, self.target, at_bound=True).steps
        if not named:
            return self.steps
        if len(named) == 1:
            named = (Step(named[0].name, self.source, self.target),)
            if self.steps[0].name == "exchange" and len(self.steps) == 1:
                return named  # it has the messages of the exchange
        as_named = Redistribution(self.source, self.target, named, self.itemsize)
        same = (as_named.sent == self.sent).all() and (as_named.received == self.received).all()
        return named if same else self.steps

    def explain(self) -> str:
        """The plan as text, with bytes: 'all-to-all [x, -] on 8 to [-, x] on 8: 1,536 bytes ...'."""
        if not self.steps:
            return "nothing moves"
        lines = []
        for step in self.named_steps:
            sent, received = step.sent * self.itemsize, step.received * self.itemsize
            if not received.any():
                lines.append(f"{step}: nothing moves, each device takes its part of what it holds")
                continue
            lines.append(
                f"{step}: {int(received.sum()):,} bytes; a device sends at most {int(sent.max()):,} "
                f"and receives at most {int(received.max()):,}"
            )
        if not self.cheapest:
            lines.append("the search for named collectives gave up; there may be cheaper ones")
        return "\n".join(lines)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the `named_steps`."""
        return tuple(step.name for step in self.named_steps)

    def _in_bytes(self, elements: Iterable[Ints]) -> Ints:
        return sum(elements, np.zeros(self.source.devices, dtype=np.int64)) * self.itemsize


def redistribute(
    source: TensorLayout, target: TensorLayout, itemsize: int = 4, named_only: bool = False
) -> Redistribution:
    """The plan from one layout to another.

    Every device receives exactly the whole values that it needs and does not hold. Partial sums are completed with the
    fewest elements that are possible (`sum_exchange`): by reduce-scatters, all-reduces and an exchange where these
    reach that bound, otherwise by one step that adds up and moves at the same time. With `named_only` the plan is the
    cheapest sequence of named collectives.

    Raises:
        LayoutError: different tensors or devices, a target with partial sums that the source does not have, or an
            itemsize that is not a positive whole number.
    """
    itemsize = require_int(itemsize, ITEMSIZE_WANTED, least=1)
    require_same(source, target)
    if target.partial and not can_become(source, target):
        raise LayoutError(SAYS("sums differ", summands=target.summands, source=source.summands))
    if same_placement(source, target):
        return Redistribution(source, target, (), itemsize)
    if target.partial and source.summands != target.summands:
        way = _summed(source, target)
        if named_only and way[-1].name == "exchange":
            way = (*way[:-1], *redistribute(way[-1].source, target, itemsize, True).steps)
        return Redistribution(source, target, way, itemsize)
    if target.partial:
        if named_only and (source.matrix, source.partial) != (target.matrix, target.partial):
            raise LayoutError("no named collective changes which devices hold a partial sum")
        if not named_only:
            return Redistribution(source, target, (Step("exchange", source, target),), itemsize)
    if named_only:
        path = collective_path(source, target)
        return Redistribution(source, target, path.steps, itemsize, path.cheapest)
    return Redistribution(source, target, _least(source, target), itemsize)


def can_become(source: TensorLayout, target: TensorLayout) -> bool:
    """True unless the target is a sum that the source is not: it may keep its summands, or complete some of them."""
    if not target.partial or source.summands == target.summands:
        return True
    return source.matrix == target.matrix and set(target.partial) < set(source.partial)


@lru_cache(maxsize=65536)
def _summed(source: TensorLayout, target: TensorLayout) -> tuple[Step, ...]:
    """The cheapest way to add up along the axes that are partial in the source only, and to move what comes of it."""
    axes = tuple(axis for axis in source.partial if axis not in target.partial)
    uneven = not target.partial and (source.uneven or target.uneven)
    ways = [
        way if same_placement(way[-1].target, target) else (*way, Step("exchange", way[-1].target, target))
        for way in reductions(source, axes, uneven)
    ]
    return min(ways, key=lambda way: (sum(step.total for step in way), len(way)))


def _least(source: TensorLayout, target: TensorLayout) -> tuple[Step, ...]:
    if not source.partial:
        return (Step("exchange", source, target),)
    way = _summed(source, target)
    at_bound = sum(step.total for step in way) <= least_sum_elements(source, target)
    return way if at_bound else (Step(SUM_EXCHANGE, source, target),)


def least_bytes(source: TensorLayout, target: TensorLayout, itemsize: int = 4) -> int:
    """The bytes that `redistribute` moves, over all devices, without creating the plan."""
    if same_placement(source, target):
        return 0
    if target.partial or (source.partial and (source.uneven or target.uneven)):
        return sum(step.total for step in redistribute(source, target, itemsize).steps) * itemsize
    return (least_sum_elements if source.partial else least_elements)(source, target) * require_int(
        itemsize, ITEMSIZE_WANTED, least=1
    )


SAYS = Sentences(
    {
        "sums differ": "the target is a sum of {summands} pieces, the source of {source}: a redistribution can complete sums, but not change them",
    }
)
"""The refusals of this chapter: a reason, and a sentence over its facts."""

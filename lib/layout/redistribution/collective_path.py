"""The cheapest sequence of named collectives between two layouts: a shortest path over layouts on prime sub-axes.

Steps are slice, all-gather, all-to-all, permute, reduce-scatter and all-reduce, each over whole axes of the
device matrix after it has been cut into axes of prime size. Two matrices with no common refinement (2x3 and
3x2) are joined by permutes. Up to MANY layouts all permutes are tried, above that those which swap two axes or
end at the target; after TIRED layouts the search settles for gathering everything and slicing.

The idea of a search over small steps is that of Rink et al. 2021, "Memory-efficient array redistribution
through portable collective communication".
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from itertools import combinations, count, pairwise, permutations
from math import prod

from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.refine import refined
from lib.layout.layouts.tensor_layout import Axes, TensorLayout, parts, same_placement

from .steps import Step

RESPELLED = ""
"""Between two spellings of one placement nothing happens."""
MANY = 600
TIRED = 4000

Move = tuple[str, TensorLayout, int]
"""Name, layout after it, elements moved in all."""


def named_path(source: TensorLayout, target: TensorLayout) -> tuple[Step, ...]:
    """The steps, at least bytes in all, then at fewest steps."""
    start, goal = refined(source, target.matrix), refined(target, source.matrix)
    best: dict[TensorLayout, tuple[int, int]] = {start: (0, 0)}
    came: dict[TensorLayout, tuple[str, TensorLayout]] = {}
    ticket = count()
    queue = [(0, 0, next(ticket), start)]
    done: set[TensorLayout] = set()
    while queue:
        cost, steps, _, here = heapq.heappop(queue)
        if here in done:
            continue
        done.add(here)
        if here == goal or len(done) > TIRED:
            break
        for name, there, more in moves(here, goal):
            merged = name == RESPELLED or (here in came and came[here][0] == name and name in ("slice", "all-gather"))
            offer = (cost + more, steps + (0 if merged else 1))
            if there not in done and (there not in best or offer < best[there]):
                best[there], came[there] = offer, (name, here)
                heapq.heappush(queue, (*offer, next(ticket), there))
    if goal not in done:
        return _by_way_of_everything(start, goal)
    path: list[Step] = []
    here = goal
    while here != start:
        name, before = came[here]
        if name == RESPELLED:
            pass
        elif path and path[-1].name == name and name in ("slice", "all-gather"):
            path[-1] = Step(name, before, path[-1].target)
        else:
            path.append(Step(name, before, here))
        here = before
    return tuple(reversed(path))


def moves(here: TensorLayout, goal: TensorLayout) -> Iterator[Move]:
    """What one named collective can make of a layout, in a fixed order."""
    yield from _collectives(here)
    for there in _permutes(here, goal):
        moved = int((parts(here) != parts(there)).any(axis=1).sum()) * here.elements
        yield ("permute" if moved else RESPELLED), there, moved


@lru_cache(maxsize=65536)
def _collectives(here: TensorLayout) -> list[Move]:
    return list(_all_but_permutes(here))


def _all_but_permutes(here: TensorLayout) -> Iterator[Move]:
    sizes, local, dims = here.matrix.shape, here.local_shape, here.tensor_map
    piece, devices = here.elements, here.devices
    used = {axis for axes in (*dims, here.partial) for axis in axes}
    for dim, axes in enumerate(dims):
        for axis in range(len(sizes)):
            if axis not in used and local[dim] % sizes[axis] == 0:
                yield "slice", _with(here, {dim: axes + (axis,)}), 0
        if axes:
            yield "all-gather", _with(here, {dim: axes[:-1]}), devices * piece * (sizes[axes[-1]] - 1)
        for first in range(len(axes)):
            tail = axes[first:]
            g = prod(sizes[axis] for axis in tail)
            for other in range(len(dims)):
                if other != dim and local[other] % g == 0:
                    after = _with(here, {dim: axes[:first], other: dims[other] + tail})
                    yield "all-to-all", after, devices * piece * (g - 1) // g
    for axis in here.partial:
        rest = tuple(a for a in here.partial if a != axis)
        for dim, axes in enumerate(dims):
            if local[dim] % sizes[axis] == 0:
                scattered = _with(here, {dim: axes + (axis,)}, rest)
                yield "reduce-scatter", scattered, devices * piece * (sizes[axis] - 1) // sizes[axis]
    for n in range(1, len(here.partial) + 1):
        for chosen in combinations(here.partial, n):
            g = prod(sizes[axis] for axis in chosen)
            left = tuple(a for a in here.partial if a not in chosen)
            yield "all-reduce", _with(here, {}, left), 2 * (g - 1) * piece * (devices // g)


def _permutes(here: TensorLayout, goal: TensorLayout) -> Iterator[TensorLayout]:
    every = _arrangements(here.matrix, here.shape)
    if every is not None:
        yield from _rearranged(here)
    else:
        if here.splits == goal.splits and here.partial == goal.partial == () and here != goal:
            yield goal
        sizes = here.matrix.shape
        free = [axis for axis in range(len(sizes)) if axis not in here.partial]
        for a, b in combinations(free, 2):
            swap = {a: b, b: a}
            tensor_map = tuple(tuple(swap.get(axis, axis) for axis in axes) for axes in here.tensor_map)
            if sizes[a] == sizes[b] and tensor_map != here.tensor_map:
                yield TensorLayout(here.shape, here.matrix, tensor_map, here.partial)
    if goal.matrix != here.matrix and not here.partial:
        across = _arrangements(goal.matrix, goal.shape)
        for tensor_map in across[here.splits] if across is not None else ():
            yield TensorLayout(goal.shape, goal.matrix, tensor_map)


@lru_cache(maxsize=65536)
def _rearranged(here: TensorLayout) -> list[TensorLayout]:
    """The layouts on the same matrix that split alike."""
    every, summed = _arrangements(here.matrix, here.shape) or {}, set(here.partial)
    return [
        TensorLayout(here.shape, here.matrix, tensor_map, here.partial)
        for tensor_map in every.get(here.splits, ())
        if tensor_map != here.tensor_map and not summed & {axis for entry in tensor_map for axis in entry}
    ]


@lru_cache(maxsize=256)
def _arrangements(matrix: DeviceMatrix, shape: tuple[int, ...]) -> dict[tuple[int, ...], list[tuple[Axes, ...]]] | None:
    """All tensor maps without partial sums by the splits they make; None if there are more than MANY."""
    found: defaultdict[tuple[int, ...], list[tuple[Axes, ...]]] = defaultdict(list)
    total = 0
    for n in range(len(matrix.shape) + 1):
        for order in permutations(range(len(matrix.shape)), n):
            for borders in combinations(range(n + len(shape) - 1), len(shape) - 1) if shape else [()]:
                cuts = [0, *(border - i for i, border in enumerate(borders)), n]
                tensor_map = tuple(order[a:b] for a, b in pairwise(cuts)) if shape else ()
                splits = tuple(prod(matrix.shape[axis] for axis in axes) for axes in tensor_map)
                if all(size % split == 0 for size, split in zip(shape, splits)):
                    found[splits].append(tensor_map)
                total += 1
                if total > MANY:
                    return None
            if not shape:
                break
    return found


def _with(layout: TensorLayout, changes: dict[int, Axes], partial: Axes | None = None) -> TensorLayout:
    tensor_map = tuple(changes.get(dim, axes) for dim, axes in enumerate(layout.tensor_map))
    return TensorLayout(layout.shape, layout.matrix, tensor_map, layout.partial if partial is None else partial)


def _by_way_of_everything(start: TensorLayout, goal: TensorLayout) -> tuple[Step, ...]:
    steps: list[Step] = []
    if start.partial:
        steps.append(Step("all-reduce", start, start.full()))
        start = start.full()
    whole = TensorLayout(start.shape, start.matrix, ((),) * len(start.shape))
    for name, a, b in (("all-gather", start, whole), ("slice", whole, goal)):
        if not same_placement(a, b):
            steps.append(Step(name, a, b))
    return tuple(steps)

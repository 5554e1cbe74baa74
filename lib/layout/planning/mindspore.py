"""How MindSpore 2.10 ranks the ways to distribute an operator that its Sharding Propagation reaches along an edge.

Found by comparison with MindSpore's choices for random networks (docs/mindspore.md). Its edges have the cost of its own
redistributions, which gather and slice: no all-to-all, and no exchange of exactly what is missing. So an edge is ranked
here by these sequences, although a plan's edges move the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod

from lib.layout.layouts.common_refinement import refined
from lib.layout.layouts.tensor_layout import TensorLayout, same_placement
from lib.layout.program.candidates import candidates
from lib.layout.program.distributed import DistributedOperator, arrange
from lib.layout.program.graph import Graph
from lib.layout.program.on_arrays import UNARY
from lib.layout.program.operators import Operator
from lib.layout.redistribution.redistribution import least_bytes

Rank = tuple[float, float, float, float, tuple[int, ...]]
KEEPS_LAYOUT = (*UNARY, "softmax")
"""Kinds with one input that MindSpore may leave as it is."""


def ways(
    graph: Graph, operator: Operator, known: TensorLayout, place: int | None, full: bool
) -> list[DistributedOperator]:
    """The candidates: with `full` those that use all devices or one, otherwise any number.

    An operator on single elements may also keep the layout of its input, on the same device matrix.
    """
    used = (1, graph.devices) if full else range(1, graph.devices + 1)
    found = candidates(graph, operator, scatter=False, used=used)
    if (
        place is None
        or operator.kind not in KEEPS_LAYOUT
        or operator.name in graph.strategies
        or graph.mesh is not None
    ):
        return found
    axes = {axis for split in known.tensor_map for axis in split}
    if known.partial or prod(known.matrix.shape[axis] for axis in axes) not in used:
        return found
    split = {letter: axes for letter, axes in zip(operator.input_letters[0], known.tensor_map) if axes}
    if not operator.free.issuperset(split):
        return found
    (same,) = arrange(operator, known.matrix, split)
    return [same, *(way for way in found if way.strategy != same.strategy)]


def rank(way: DistributedOperator, given: TensorLayout, needed: TensorLayout) -> Rank:
    """What MindSpore compares, the smaller the better.

    Without communication on the edge: the same layout before a slice. Otherwise: what the redistribution sends, then
    what it copies. Then: the operator's own all-reduce, its computation, and fewer parts of the rows.
    """
    sent, copied = redistribution_cost(given, needed)
    change = copied if sent else float(not same_placement(given, needed))
    return sent, change, way.moved, way.flops, way.strategy[0][-2:]


@lru_cache(maxsize=65536)
def redistribution_cost(source: TensorLayout, target: TensorLayout) -> tuple[float, float]:
    """What a device sends and copies, in elements, forward and backward, if it gathers and slices.

    Gathering pieces of s elements from n devices costs (n + 1) s / 2, as in MindSpore's cost model. Slices come first
    where they are possible, then axes that split another dimension in the target, then all others.
    """
    if same_placement(source, target):
        return 0.0, 0.0
    now, end = refined(source, target.matrix), refined(target, source.matrix)
    if now.matrix != end.matrix:
        return float(least_bytes(source, target, 1)) / source.devices, 1.0
    sizes, wanted = now.matrix.shape, [list(axes) for axes in end.tensor_map]
    splits, piece, sent, copied = [list(axes) for axes in now.tensor_map], now.elements, 0.0, 0.0
    while splits != wanted:
        for dim, axes in _slices(splits, wanted):
            splits[dim] += axes
            copied += piece
            piece //= prod(sizes[axis] for axis in axes)
        if splits == wanted:
            break
        dim, axes = _gather(splits, wanted)
        devices = prod(sizes[axis] for axis in axes)
        splits[dim] = [axis for axis in splits[dim] if axis not in axes]
        sent += piece * (devices + 1) / 2
        copied += piece * devices * (1 if dim == 0 else 2)  # another dimension is gathered as rows, and rearranged
        piece *= devices
    return sent, copied


def _slices(splits: list[list[int]], wanted: list[list[int]]) -> Iterator[tuple[int, list[int]]]:
    """Dimensions that can be split further now, with the free axes that split them next."""
    for dim, (have, want) in enumerate(zip(splits, wanted)):
        if have == want[: len(have)]:
            axes: list[int] = []
            for axis in want[len(have) :]:
                if any(axis in each for each in splits):
                    break
                axes.append(axis)
            if axes:
                yield dim, axes


def _gather(splits: list[list[int]], wanted: list[list[int]]) -> tuple[int, list[int]]:
    """The next dimension to gather, and the axes over which it is gathered at once."""
    goes = {axis: dim for dim, axes in enumerate(wanted) for axis in axes}
    wrong = [
        (dim, axis)
        for dim, have in enumerate(splits)
        for i, axis in enumerate(have)
        if have[: i + 1] != wanted[dim][: i + 1]
    ]
    first = [(dim, axis) for dim, axis in wrong if axis in goes] or wrong
    dim, axis = first[0]
    return dim, [each for where, each in first if where == dim and goes.get(each) == goes.get(axis)]

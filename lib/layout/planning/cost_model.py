"""MindSpore's cost model: what an edge between two layouts costs, and what a distributed operator costs by itself.

Read from its source (`edge_costmodel.cc`, `tensor_redistribution.cc`, `operator_costmodel.cc`) and compared with its
choices (docs/mindspore.md). Its redistribution gathers and slices: no all-to-all, and no exchange of exactly what is
missing. So propagation ranks edges by these sequences, although a plan's edges move the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from lib.layout.layouts.common_refinement import blocks_of, common_shape, respelled
from lib.layout.layouts.device_matrix import DeviceMatrix
from lib.layout.layouts.tensor_layout import TensorLayout
from lib.layout.program.distributed import DistributedOperator

SHORT, SHORT_COSTS, START = 2048, 3072, 1024
"""Bytes of a message up to which all cost the same, what these cost, and what a longer one costs besides its bytes."""

Parts = tuple[int | None, ...]
"""For each part of a tensor's dimensions, the axis that splits it."""


class Cost(NamedTuple):
    """Bytes that a device sends, in forward and backward, and bytes that it copies or reads."""

    communication: float
    computation: float


def operator_cost(way: DistributedOperator, itemsize: int) -> Cost:
    """The all-reduce of an operator's own sums; and its pieces of the inputs, with the sums.

    A byte less each if the first dimension is split over all devices: MindSpore prefers data parallelism.
    """
    summed = way.local.elements * itemsize if way.local.partial else 0
    read = sum(layout.elements for layout in way.inputs) * itemsize
    read += summed * (2 if way.operator.kind == "reduce_mean" else 1)
    first = way.inputs[0]
    less = int(bool(first.splits) and first.splits[0] == first.matrix.size)
    return Cost(_message(summed - less if summed else 0), read - less)


@lru_cache(maxsize=65536)
def redistribution_cost(source: TensorLayout, target: TensorLayout, itemsize: int) -> Cost:
    """What it costs to gather and slice pieces until the target's layout is reached.

    Each step is counted for pieces of the source, also where earlier steps have changed their size.
    """
    have, want, sizes = _on_common_parts(source, target)
    steps = list(_steps(have, want, sizes))
    piece = source.elements * itemsize
    gathers = [(part, size) for part, size, gathered in steps if gathered]
    copies = len(steps) - len(gathers)
    copies += sum(1 if part == 0 else 1 + 2 * size for part, size in gathers)  # other parts are gathered as rows first
    if steps and len(have) > len(source.shape):
        copies += 2  # the tensor is reshaped to its parts, and back
    forward, backward = piece * sum(size for _, size in gathers) / 2, piece * len(gathers) / 2
    return Cost(_message(forward) + _message(backward), piece * copies)


def _message(length: float) -> float:
    if length > SHORT:
        return length + START
    return SHORT_COSTS if length else 0


def _steps(have: Parts, want: Parts, sizes: tuple[int, ...]) -> Iterator[tuple[int, int, bool]]:
    """The part, the size of the axis, and whether it is gathered there or sliced, until all parts are as wanted.

    Slices by an axis that is free come first. An axis that splits another part is gathered there. Then follow gathers
    of axes that are not wanted; if there is none, the first part is gathered.
    """
    now = list(have)
    while now != list(want):
        open_parts = [part for part, axis in enumerate(now) if axis != want[part]]
        sliced = [part for part in open_parts if now[part] is None and want[part] not in now]
        moved = [part for part in open_parts if now[part] is None and want[part] in now]
        unused = [part for part in open_parts if now[part] is not None and now[part] not in want]
        if sliced or moved:
            part = (sliced or moved)[0]
            axis = want[part]
            assert axis is not None
            if moved and not sliced:
                there = now.index(axis)
                yield there, sizes[axis], True
                now[there] = None
            yield part, sizes[axis], False
            now[part] = axis
            continue
        part = (unused or open_parts)[0]
        gathered = now[part]
        assert gathered is not None
        yield part, sizes[gathered], True
        now[part] = None


def _on_common_parts(source: TensorLayout, target: TensorLayout) -> tuple[Parts, Parts, tuple[int, ...]]:
    """Both layouts on the coarsest matrix, and the coarsest parts of dimensions, such that an axis splits each part.

    Without such a matrix, their axes have nothing in common.
    """
    sizes = common_shape([source.matrix, target.matrix])
    while sizes is not None:
        matrix = DeviceMatrix(sizes, source.matrix.devices)
        starts = [
            [_starts(axes, sizes) for axes in respelled(layout, matrix).tensor_map] for layout in (source, target)
        ]
        cuts = [sorted({*source_starts, *target_starts}) for source_starts, target_starts in zip(*starts)]
        inside = [
            (axis, start, cut)
            for by_dim in starts
            for begins, dim_cuts in zip(by_dim, cuts)
            for start, axis in begins.items()
            for cut in dim_cuts
            if axis is not None and start < cut < start * sizes[axis]
        ]
        if not inside:
            have, want = (
                tuple(
                    begins.get(cut)
                    for begins, dim_cuts in zip(by_dim, cuts)
                    for cut in dim_cuts[: max(1, len(dim_cuts) - 1)]
                )
                for by_dim in starts
            )
            return have, want, sizes
        if any(cut % start or start * sizes[axis] % cut for axis, start, cut in inside):
            break
        blocks = blocks_of(sizes)
        finer = {blocks[axis] // (cut // start) for axis, start, cut in inside}
        sizes = tuple(a // b for a, b in pairwise(sorted({*blocks, *finer}, reverse=True)))
    gathered = [axis for axes in source.tensor_map for axis in axes]
    sliced = [axis + len(source.matrix.shape) for axes in target.tensor_map for axis in axes]
    have, want = (*gathered, *(None for _ in sliced)), (*(None for _ in gathered), *sliced)
    return have, want, source.matrix.shape + target.matrix.shape


def _starts(axes: tuple[int, ...], sizes: tuple[int, ...]) -> dict[int, int | None]:
    """The axes that split a dimension, each by the number of pieces before it; and where the last one ends."""
    return {prod(sizes[axis] for axis in axes[:i]): axis for i, axis in enumerate(axes)} | {
        prod(sizes[axis] for axis in axes): None
    }

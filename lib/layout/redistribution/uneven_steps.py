"""Steps of named collectives between a whole dimension and all parts of an uneven one.

Where the pieces of one layout are cut into equal pieces of the other, padding included, a dimension is split axis by
axis as any other (`divides`). Otherwise, as from 10 in 2 parts of 5 to 4 parts of 3, no collective of a group makes one
of the other; then all parts are made of the whole dimension at once, if the goal has them, or the whole of all parts.
"""

from collections.abc import Iterator

from lib.layout.layouts.tensor_layout import TensorLayout

from .steps import Step, divides, with_axes


def steps_with_padding(here: TensorLayout, goal: TensorLayout) -> Iterator[tuple[str, TensorLayout, int]]:
    """The name of each such step, the layout after it, and the elements that it moves in total."""
    found = [
        each for dim in range(len(here.shape)) for each in (*_to_whole(here, goal, dim), *_to_parts(here, goal, dim))
    ]
    for name, there in found:
        yield name, there, Step(name, here, there).total


def _to_whole(here: TensorLayout, goal: TensorLayout, dim: int) -> Iterator[tuple[str, TensorLayout]]:
    """A dimension gathered, or its axes moved to another dimension, one of the two being uneven."""
    axes, is_uneven = here.tensor_map[dim], here.padded_shape[dim] != here.shape[dim]
    if is_uneven:
        yield "all-gather", with_axes(here, {dim: ()})
    for other, wanted in enumerate(_wanted(here, goal)):
        if axes and other != dim:
            after = with_axes(here, {dim: (), other: here.tensor_map[other] + axes})
            fits = divides(here, after, other)
            if (fits and is_uneven) or (not fits and here.splits[other] == 1 and wanted == axes):
                yield "all-to-all", after


def _to_parts(here: TensorLayout, goal: TensorLayout, dim: int) -> Iterator[tuple[str, TensorLayout]]:
    """A whole dimension cut as the goal has it, unevenly: from copies, or from summands."""
    axes = _wanted(here, goal)[dim]
    if here.tensor_map[dim] or not axes or goal.padded_shape[dim] == goal.shape[dim]:
        return
    used = {axis for entry in (*here.tensor_map, here.partial) for axis in entry}
    if not used & set(axes):
        yield "slice", with_axes(here, {dim: axes})
    elif set(axes) <= set(here.partial):
        yield "reduce-scatter", with_axes(here, {dim: axes}, tuple(axis for axis in here.partial if axis not in axes))


def _wanted(here: TensorLayout, goal: TensorLayout) -> tuple[tuple[int, ...], ...]:
    """The axes of each dimension of the goal, if they are on the same matrix."""
    return goal.tensor_map if goal.matrix == here.matrix else ((),) * len(here.shape)


__all__ = ["steps_with_padding"]

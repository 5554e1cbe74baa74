"""Pieces of a tensor as numpy arrays, cut by a layout and joined again.

A piece of an uneven split has padding at its end. Nobody reads it: operators compute on `trimmed` pieces and their
results are `padded` again, moves fill in what a box has beyond a tensor, and `join` leaves it out. So no operator has
to know of it, whatever it would do with a value that does not belong there.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError
from lib.masked_arrays import refuse_masked

from ..words import SAYS
from .tensor_layout import TensorLayout, groups

Array = NDArray[Any]
Pieces = dict[int, Array]
"""Device number to its piece."""
Box = tuple[slice, ...]
"""Part of a tensor or of a piece, from a start to a stop in each dimension."""


def new_piece(layout: TensorLayout, dtype: Any) -> Array:
    """A device's piece that is to be filled; any padding is there already."""
    return blank(layout.local_shape, dtype) if layout.uneven else np.empty(layout.local_shape, dtype=dtype)


def blank(shape: tuple[int, ...], dtype: Any) -> Array:
    """An array of padding."""
    return np.zeros(shape, dtype=dtype)


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """An array with padding after its elements, up to a shape."""
    if array.shape == shape:
        return array
    result = blank(shape, array.dtype)
    result[tuple(map(slice, array.shape))] = array
    return result


def trimmed(piece: Array, layout: TensorLayout, device: int) -> Array:
    """A device's piece without its padding: a view."""
    return piece[tuple(map(slice, layout.real_shape(device)))] if layout.uneven else piece


def piece_of(tensor: Array, layout: TensorLayout, device: int) -> Array:
    """A device's piece of a whole tensor; a view unless it has padding."""
    return padded(tensor[layout.box(device)], layout.local_shape)


def elements_of(piece: Array, box: Box, lo: int, hi: int) -> Array:
    """Elements lo to hi, row-major, of a box of a piece; where the box reaches beyond the piece there is padding."""
    return padded(piece[box], tuple(s.stop - s.start for s in box)).ravel()[lo:hi]


def put_elements(result: Array, box: Box, lo: int, hi: int, elements: Array) -> None:
    """Writes elements lo to hi, row-major, of a box into a piece, except those beyond it."""
    view: Any = (*box, ...)  # of an array without dimensions too, where () would give a number
    given, shape = result[view], tuple(s.stop - s.start for s in box)
    if len(elements) == prod(shape):
        given[...] = elements.reshape(shape)[tuple(map(slice, given.shape))]
    elif given.shape == shape:
        given.flat[lo:hi] = elements
    else:
        places = np.unravel_index(np.arange(lo, hi), shape)
        inside = np.all([place < n for place, n in zip(places, given.shape)], axis=0)
        given[tuple(place[inside] for place in places)] = elements[inside]


def cut(tensor: Array, layout: TensorLayout) -> Pieces:
    """The pieces of a tensor. Under a partial layout the first summand is the tensor, the others are zeros; of a
    maximum, all are the tensor.

    Raises:
        LayoutError: the tensor's shape differs from the layout's.
    """
    refuse_masked(tensor, "cut()")
    tensor = np.asarray(tensor)
    if tensor.shape != layout.shape:
        raise LayoutError(f"the tensor has shape {tensor.shape}, the layout is for {layout.shape}")
    first = {group[0] for group in groups(layout, layout.partial)}
    pieces = {device: np.asarray(piece_of(tensor, layout, device), order="C") for device in range(layout.devices)}
    return {
        device: piece if device in first or layout.largest else np.zeros_like(piece) for device, piece in pieces.items()
    }


def join(pieces: Pieces, layout: TensorLayout) -> Array:
    """The tensor that these pieces make up: summands are added, copies are compared, padding is left out.

    Raises:
        LayoutError: a piece is missing or has the wrong shape, or two copies differ.
    """
    check(pieces, layout)
    whole = np.zeros(layout.shape, dtype=pieces[0].dtype)
    real = {device: trimmed(piece, layout, device) for device, piece in pieces.items()}
    summed = {group[0]: layout.together(real[d] for d in group) for group in groups(layout, layout.partial)}
    seen: dict[tuple[int, ...], int] = {}
    for device, piece in summed.items():
        first = seen.setdefault(layout.part(device), device)
        if first != device and not np.array_equal(piece, summed[first], equal_nan=whole.dtype.kind in "fc"):
            raise LayoutError(SAYS("pieces differ", first=first, device=device))
        whole[layout.box(device)] = piece
    return whole


def check(pieces: Pieces, layout: TensorLayout) -> None:
    """Refuses pieces whose devices or shapes do not match the layout."""
    if not isinstance(pieces, Mapping):
        raise LayoutError(f"pieces are a dictionary of arrays by device number; got {type(pieces).__name__}")
    if sorted(pieces) != list(range(layout.devices)):
        raise LayoutError(f"the layout has devices 0-{layout.devices - 1}; got pieces for {sorted(pieces)}")
    for device, piece in pieces.items():
        refuse_masked(piece, f"the piece of device {device}")
        if piece.shape != layout.local_shape:
            raise LayoutError(
                f"device {device} holds a piece of shape {piece.shape}; the layout requires {layout.local_shape}"
            )

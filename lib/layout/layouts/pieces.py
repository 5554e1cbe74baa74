"""Pieces of a tensor, cut by a layout and joined again: what a layout means on numpy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError

from .tensor_layout import TensorLayout, groups

Array = NDArray[Any]
Pieces = dict[int, Array]
"""Device number to its piece."""


def cut(tensor: Array, layout: TensorLayout) -> Pieces:
    """The pieces of a tensor. Under a partial layout the first summand is the tensor, the others are zeros.

    Raises:
        LayoutError: the tensor's shape differs from the layout's.
    """
    tensor = np.asarray(tensor)
    if tensor.shape != layout.shape:
        raise LayoutError(f"the tensor has shape {tensor.shape}, the layout is for {layout.shape}")
    first = {group[0] for group in groups(layout, layout.partial)}
    pieces = {device: np.ascontiguousarray(tensor[layout.box(device)]) for device in range(layout.devices)}
    return {device: piece if device in first else np.zeros_like(piece) for device, piece in pieces.items()}


def join(pieces: Pieces, layout: TensorLayout) -> Array:
    """The tensor that these pieces make up: summands are added, copies are compared.

    Raises:
        LayoutError: a piece is missing or has the wrong shape, or two copies differ.
    """
    check(pieces, layout)
    whole = np.zeros(layout.shape, dtype=pieces[0].dtype)
    summed = {group[0]: sum(pieces[d] for d in group) for group in groups(layout, layout.partial)}
    seen: dict[tuple[int, ...], int] = {}
    for device, piece in summed.items():
        first = seen.setdefault(layout.part(device), device)
        if first != device and not np.array_equal(piece, summed[first]):
            raise LayoutError(f"devices {first} and {device} should hold the same piece, but theirs differ")
        whole[layout.box(device)] = piece
    return whole


def check(pieces: Pieces, layout: TensorLayout) -> None:
    """Refuses pieces whose devices or shapes do not match the layout.

    Raises:
        LayoutError: names the first difference.
    """
    if not isinstance(pieces, Mapping):
        raise LayoutError(f"pieces are a dictionary of arrays by device number; got {type(pieces).__name__}")
    if sorted(pieces) != list(range(layout.devices)):
        raise LayoutError(f"the layout has devices 0-{layout.devices - 1}; got pieces for {sorted(pieces)}")
    for device, piece in pieces.items():
        if piece.shape != layout.local_shape:
            raise LayoutError(
                f"device {device} holds a piece of shape {piece.shape}; the layout requires {layout.local_shape}"
            )

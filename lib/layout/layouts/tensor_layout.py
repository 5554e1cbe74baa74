"""The Tensor Layout: the piece of a tensor that each device holds, whole values or one summand of several."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError

from .checks import require_ints
from .device_matrix import DeviceMatrix, Ints, coordinates

Axes = tuple[int, ...]
Placement = tuple[tuple[int, ...], bytes, tuple[int, ...]]
"""What every device holds, however it is expressed."""


@dataclass(frozen=True)
class TensorLayout:
    """A tensor of `shape` over a Device Matrix.

    `tensor_map` has an entry for each dimension: the axes of the matrix that split it, coarsest first. A single axis
    may be given as a number; -1, None or () means that the dimension is not split.
    A dimension of size s in n parts has pieces of ceil(s / n), as in GSPMD (Xu et al. 2021): where n does
    not divide s, the tensor is padded at the end to n * ceil(s / n). What padding holds is never read.
    Axes in `partial` hold summands: the tensor is the sum of the pieces along them. Along every other axis
    the devices hold copies. Axes of size 1 are dropped, so that equal layouts compare equal.

    Raises:
        LayoutError: the map does not fit the shape, or names an axis that does not exist or is already used.
    """

    shape: tuple[int, ...]
    matrix: DeviceMatrix
    tensor_map: tuple[Axes, ...]
    partial: Axes = ()
    largest: bool = False
    """True if the tensor is the maximum of the pieces along the partial axes instead of their sum."""

    def __post_init__(self) -> None:
        shape = require_ints(self.shape, "the shape of a tensor is a tuple of whole numbers")
        if not all(n >= 1 for n in shape):
            raise LayoutError(f"every dimension of a tensor is at least 1; got {shape}")
        entries = tuple(self.tensor_map)
        if len(entries) != len(shape):
            raise LayoutError(
                f"the tensor map has {len(entries)} entries; the tensor of shape {shape} has {len(shape)} dimensions"
            )
        sizes = self.matrix.shape
        tensor_map = tuple(tuple(self._known(axis) for axis in _axes(entry)) for entry in entries)
        partial = tuple(sorted(self._known(axis) for axis in _axes(self.partial)))
        named = [axis for axes in (*tensor_map, partial) for axis in axes]
        for axis in named:
            if named.count(axis) > 1:
                raise LayoutError(
                    f"axis {axis} of the device matrix {self.matrix} is named {named.count(axis)} times; "
                    "an axis can split only one dimension, once"
                )
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "tensor_map", tuple(tuple(a for a in axes if sizes[a] > 1) for axes in tensor_map))
        object.__setattr__(self, "partial", tuple(a for a in partial if sizes[a] > 1))
        object.__setattr__(self, "largest", bool(self.largest and self.partial))

    def _known(self, axis: int) -> int:
        if not 0 <= axis < len(self.matrix.shape):
            raise LayoutError(
                f"there is no axis {axis}: the device matrix {self.matrix} has {len(self.matrix.shape)} axes"
            )
        return int(axis)

    @cached_property
    def _hash(self) -> int:
        return hash((self.shape, self.matrix, self.tensor_map, self.partial, self.largest))

    def __hash__(self) -> int:
        return self._hash

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.matrix.size

    @cached_property
    def splits(self) -> tuple[int, ...]:
        """The number of parts of each dimension."""
        return tuple(prod(self.matrix.shape[axis] for axis in axes) for axes in self.tensor_map)

    @cached_property
    def local_shape(self) -> tuple[int, ...]:
        """The shape of a device's piece, padding included."""
        return tuple(-(-size // parts) for size, parts in zip(self.shape, self.splits))

    @cached_property
    def padded_shape(self) -> tuple[int, ...]:
        """The shape of all pieces together: the tensor's, unless a dimension is split unevenly."""
        return tuple(n * parts for n, parts in zip(self.local_shape, self.splits))

    @cached_property
    def uneven(self) -> bool:
        """True if some pieces have padding."""
        return self.padded_shape != self.shape

    @property
    def elements(self) -> int:
        """Elements that a device holds, padding included."""
        return prod(self.local_shape)

    @property
    def summands(self) -> int:
        """The number of pieces that add up to a piece of the tensor: 1 unless the layout is partial."""
        return prod(self.matrix.shape[axis] for axis in self.partial)

    def part(self, device: int) -> tuple[int, ...]:
        """The part of each dimension that a device holds, by number."""
        self.matrix.coordinates(device)  # refuses a device that does not exist
        return tuple(int(i) for i in parts(self)[device])

    def box(self, device: int) -> tuple[slice, ...]:
        """A device's piece, without its padding, as slices of the whole tensor."""
        sides = zip(self.part(device), self.local_shape, self.shape)
        return tuple(slice(min(i * n, size), min((i + 1) * n, size)) for i, n, size in sides)

    def real_shape(self, device: int) -> tuple[int, ...]:
        """The shape of a device's piece without its padding; 0 where it is nothing else."""
        return tuple(s.stop - s.start for s in self.box(device)) if self.uneven else self.local_shape

    def together(self, pieces: Iterable[NDArray[Any]]) -> NDArray[Any]:
        """What pieces along the partial axes make up: their sum or maximum, always in this order."""
        first, *others = pieces
        for other in others:
            first = np.maximum(first, other) if self.largest else first + other
        return first

    def full(self) -> TensorLayout:
        """The same pieces after the summands have been added up everywhere."""
        return self if not self.partial else TensorLayout(self.shape, self.matrix, self.tensor_map)

    def __str__(self) -> str:
        names = self.matrix.names
        dims = ", ".join("+".join(names[axis] for axis in axes) or "-" for axes in self.tensor_map)
        kind = "maximum" if self.largest else "partial"
        partial = f", {kind} over {'+'.join(names[axis] for axis in self.partial)}" if self.partial else ""
        return f"[{dims}]{partial} on {self.matrix}"


def _axes(entry: int | Iterable[int] | None) -> Axes:
    if entry is None:
        return ()
    if isinstance(entry, int | np.integer):
        return () if entry == -1 else (int(entry),)
    return require_ints(entry, "an entry of a tensor map is the number of an axis, several in a tuple, or -1 for none")


def same_placement(a: TensorLayout, b: TensorLayout) -> bool:
    """True if every device holds the same under both, even if they are expressed differently."""
    return (
        a.shape == b.shape
        and a.splits == b.splits
        and a.devices == b.devices
        and bool((parts(a) == parts(b)).all())
        and (a.partial == b.partial == () or (a.matrix, a.partial, a.largest) == (b.matrix, b.partial, b.largest))
    )


@lru_cache(maxsize=65536)
def placement(layout: TensorLayout) -> Placement:
    """Equal for layouts under which every device holds the same, if their partial sums are on one matrix."""
    return layout.splits, parts(layout).tobytes(), layout.partial


@lru_cache(maxsize=65536)
def parts(layout: TensorLayout) -> Ints:
    """The part of each dimension that each device holds: devices x dimensions. Read-only."""
    places = coordinates(layout.matrix)
    table = np.zeros((layout.devices, len(layout.shape)), dtype=np.int64)
    for dim, axes in enumerate(layout.tensor_map):
        table[:, dim] = _mixed_radix(places, axes, layout.matrix.shape)
    table.setflags(write=False)
    return table


def groups(layout: TensorLayout, axes: Sequence[int]) -> list[list[int]]:
    """Devices that differ only along `axes`, each group in the order of these axes, the first one slowest."""
    places = coordinates(layout.matrix)
    others = [axis for axis in range(len(layout.matrix.shape)) if axis not in axes]
    key = _mixed_radix(places, others, layout.matrix.shape)
    rank = _mixed_radix(places, axes, layout.matrix.shape)
    order = np.lexsort((rank, key))
    size = prod(layout.matrix.shape[axis] for axis in axes)
    members: list[list[int]] = order.reshape(-1, size).tolist()
    return members


def _mixed_radix(places: Ints, axes: Sequence[int], sizes: Sequence[int]) -> Ints:
    number = np.zeros(len(places), dtype=np.int64)
    for axis in axes:
        number = number * sizes[axis] + places[:, axis]
    return number

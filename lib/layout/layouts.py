"""Tensor layouts: which piece of a tensor each device holds.

A layout is a Device Matrix, an arrangement of devices along axes, and for each dimension of the tensor the axes over
which it is split (MindSpore's tensor map; GSPMD's annotations mean the same and are another way to write them). A
tensor may also be a sum of what devices hold. Sets of indices for each device could describe more placements, but two
of them can only be compared device by device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, lru_cache
from itertools import pairwise
from math import prod
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib.errors import PuzzleError, refuse_masked
from lib.layout.words import SAYS

# --- The error of the layout track: one sentence that includes the numbers ---


class LayoutError(PuzzleError):
    """A layout, strategy, graph or cap that is not possible."""

    reason = "layout"


class OutOfEffortError(LayoutError):
    """A search that found no plan with its effort; every plan costs at least `bound`."""

    def __init__(self, bound: int) -> None:
        super().__init__("no plan was found with this effort; allow more with effort=, or configure more operators")
        self.bound = bound


# --- Checks of players' input: whole numbers, as in shapes, axes, strategies and caps, and names that have to exist ---

PEAK_WANTED = "a cap on the peak is a whole number of bytes per device, such as 60_000"


def require_int(given: Any, what: str) -> int:
    """One number as an int; `what` says what it should be."""
    if not _is_whole(given):
        raise LayoutError(f"{what}; got {given!r}")
    return int(given)


def require_ints(given: Any, what: str, within: Any = None) -> tuple[int, ...]:
    """The numbers as a tuple of int."""
    try:
        numbers = tuple(given)
    except TypeError:
        numbers = (None,)
    if not all(map(_is_whole, numbers)):
        raise LayoutError(f"{what}; got {(given if within is None else within)!r}")
    return tuple(int(n) for n in numbers)


def require_itemsize(given: Any) -> int:
    """The size of an element in bytes."""
    wanted = "the size of an element is a whole number of bytes, 1 or more"
    if require_int(given, wanted) < 1:
        raise LayoutError(f"{wanted}; got {given}")
    return int(given)


def _is_whole(given: Any) -> bool:
    return type(given) is int or (isinstance(given, Integral) and not isinstance(given, bool))


def nearest_name(wanted: Any, known: Iterable[str]) -> str:
    """Advice for a name that does not exist: "did you mean 'relu'?", or all existing names."""
    names = list(known)
    near = get_close_matches(str(wanted), names, n=1)
    return f"did you mean '{near[0]}'?" if near else f"there are {', '.join(names) or 'none'}"


def require_cap(given: Any, wanted: str) -> int:
    """A cap in bytes."""
    if require_int(given, wanted) < 0:
        raise LayoutError(f"{wanted}; got {given}")
    return int(given)


# --- The Device Matrix: an arrangement of the devices along axes ---
#
# A mesh in the terms of GSPMD, DTensor and JAX. Source: "Sharding Propagation", section Tensor Layout, in the
# documentation of MindSpore 2.1; Xu et al. 2021, "GSPMD", section 3.1.

Ints = NDArray[np.int64]

AXES_WANTED = "the axes of a device matrix are positive whole numbers"
AXIS_NAMES = "xyzuvwabcdefghijklmnopqrst"


@dataclass(frozen=True)
class DeviceMatrix:
    """Devices 0 to n-1 in row-major order, or in the order of `devices`; the last axis changes fastest.

    Axes count from the left, from 0. `names` are for readers: two matrices that differ only in them are equal.

    Raises:
        LayoutError: an axis is not a positive whole number, or `devices` is not a permutation of 0 to n-1.
    """

    shape: tuple[int, ...]
    devices: tuple[int, ...] = ()
    """The device at each place, row-major; empty means 0, 1, 2, and so on."""
    names: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        shape = require_ints(self.shape, AXES_WANTED)
        if not all(n >= 1 for n in shape):
            raise LayoutError(f"{AXES_WANTED}; got {shape}")
        object.__setattr__(self, "shape", shape)
        devices = require_ints(self.devices, "the devices of a device matrix are given by number")
        if devices and sorted(devices) != list(range(self.size)):
            raise LayoutError(
                f"the device matrix {self} has places for devices 0-{self.size - 1}, each once; "
                f"got {len(devices)} devices, {len(set(devices))} of them different, up to {max(devices)}"
            )
        object.__setattr__(self, "devices", () if devices == tuple(range(self.size)) else devices)
        names = tuple(self.names) or tuple(AXIS_NAMES[: len(shape)])
        if len(names) != len(shape) or len(set(names)) != len(names):
            raise LayoutError(f"the device matrix {self} needs {len(shape)} different axis names; got {names}")
        object.__setattr__(self, "names", names)

    @property
    def size(self) -> int:
        """The number of devices."""
        return prod(self.shape)

    def axis(self, name: str | int) -> int:
        """The number of an axis, given by name or number."""
        if isinstance(name, str) and name in self.names:
            return self.names.index(name)
        if not isinstance(name, str) and 0 <= name < len(self.shape):
            return int(name)
        known = ", ".join(f"{i} ({n})" for i, n in enumerate(self.names))
        raise LayoutError(f"the device matrix {self} has no axis {name!r}; it has {known or 'none'}")

    def coordinates(self, device: int) -> tuple[int, ...]:
        """A device's position, one number for each axis."""
        if not 0 <= device < self.size:
            raise LayoutError(f"there is no device {device}: the device matrix {self} has 0-{self.size - 1}")
        return tuple(int(i) for i in coordinates(self)[device])

    def __str__(self) -> str:
        return "x".join(map(str, self.shape)) or "1"


@lru_cache(maxsize=1024)
def coordinates(matrix: DeviceMatrix) -> Ints:
    """Coordinates of every device: devices x axes. Read-only."""
    places = np.stack(np.unravel_index(np.arange(matrix.size), matrix.shape), axis=1) if matrix.shape else None
    table = np.zeros((matrix.size, len(matrix.shape)), dtype=np.int64) if places is None else places.astype(np.int64)
    if matrix.devices:
        ordered = np.empty_like(table)
        ordered[np.array(matrix.devices)] = table
        table = ordered
    table.setflags(write=False)
    return table


# --- The Tensor Layout: the piece of a tensor that each device holds, whole values or one summand of several ---

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


# --- Layouts in the terms of GSPMD and GShard: a mesh with named axes, and annotations on tensors ---
#
# These functions return layouts, for a shape or for anything that has one. The functions of the same names in
# `program.tracing` (exported by `lib.layout.spmd`) annotate a tensor within a program, and return the tensor.
#
# Sources: Xu et al. 2021, "GSPMD", section 3.2 (mesh_split); Lepikhin et al. 2020, "GShard", section 3.2 (replicate,
# split, shard).

DEVICES_WANTED = "the number of devices is a whole number"

Shaped = Any
"""A shape, or anything that has one."""
Mapped = int | str | None | Sequence[int | str]


class P(tuple[Mapped, ...]):
    """The mesh axes that split each dimension, as in JAX's PartitionSpec: P("data", None), P(("data", "model"))."""

    def __new__(cls, *entries: Mapped) -> P:
        return super().__new__(cls, entries)

    def __repr__(self) -> str:
        return f"P({', '.join(map(repr, self))})"


def mesh(**axes: int) -> DeviceMatrix:
    """A Device Matrix whose axes have names: mesh(data=2, model=4)."""
    return DeviceMatrix(tuple(axes.values()), names=tuple(axes))


def mesh_split(
    tensor: Shaped, device_mesh: DeviceMatrix, dims_mapping: Sequence[Mapped] | Mapping[int, Mapped]
) -> TensorLayout:
    """The layout of a tensor with dimension i split over the mesh axis (or axes) dims_mapping[i].

    -1 or None: not split. Axes are given by number or name. A mapping from dimensions to axes may omit dimensions.

    Raises:
        LayoutError: the mesh or the mapping is malformed, or the layout is not possible.
    """
    shape = _shape(tensor)
    if not isinstance(device_mesh, DeviceMatrix):
        raise LayoutError(f"mesh_split takes a mesh, such as mesh(data=2, model=4); got {device_mesh!r}")
    if isinstance(dims_mapping, Mapping):
        for dim in dims_mapping:
            if not 0 <= dim < len(shape):
                raise LayoutError(f"there is no dimension {dim}: the tensor of shape {shape} has {len(shape)}")
        entries: list[Mapped] = [dims_mapping.get(dim) for dim in range(len(shape))]
    elif isinstance(dims_mapping, Sequence):
        entries = list(dims_mapping)
    else:
        raise LayoutError(f"a mapping has one mesh axis per dimension, such as ('data', -1); got {dims_mapping!r}")
    return TensorLayout(shape, device_mesh, tuple(_axis_numbers(device_mesh, entry) for entry in entries))


def replicate(tensor: Shaped, devices: int) -> TensorLayout:
    """The layout with the whole tensor on every device."""
    shape = _shape(tensor)
    return TensorLayout(shape, DeviceMatrix((require_int(devices, DEVICES_WANTED),)), ((),) * len(shape))


def split(tensor: Shaped, split_dimension: int, num_partitions: int, devices: int | None = None) -> TensorLayout:
    """The layout of a tensor in `num_partitions` parts along one dimension, padded if they do not divide it.

    With more devices than partitions, consecutive devices hold the same part.
    """
    shape = _shape(tensor)
    split_dimension = require_int(split_dimension, "split takes the number of one dimension")
    num_partitions = require_int(num_partitions, "split takes a whole number of partitions")
    devices = num_partitions if devices is None else require_int(devices, DEVICES_WANTED)
    if num_partitions < 1 or devices % num_partitions:
        raise LayoutError(f"{devices} devices cannot hold {num_partitions} partitions in equal numbers of copies")
    if not 0 <= split_dimension < len(shape):
        raise LayoutError(f"there is no dimension {split_dimension}: the tensor of shape {shape} has {len(shape)}")
    copies = devices // num_partitions
    matrix = DeviceMatrix((num_partitions, copies) if copies > 1 else (num_partitions,))
    return TensorLayout(shape, matrix, tuple((0,) if dim == split_dimension else () for dim in range(len(shape))))


def shard(tensor: Shaped, device_assignment: Any) -> TensorLayout:
    """The layout of a tensor whose parts are assigned by a nested list: entry [i][j] is the device of part (i, j).

    Raises:
        LayoutError: the list does not match the tensor's dimensions, or does not name each device once.
    """
    shape = _shape(tensor)
    try:
        assignment = np.array(device_assignment, dtype=np.int64)
    except (ValueError, TypeError):
        raise LayoutError("a device assignment is a nested list of device numbers, rows of equal length") from None
    if assignment.ndim != len(shape):
        raise LayoutError(
            f"the device assignment has {assignment.ndim} dimensions, the tensor of shape {shape} has {len(shape)}"
        )
    matrix = DeviceMatrix(assignment.shape, tuple(int(device) for device in assignment.ravel()))
    return TensorLayout(shape, matrix, tuple((dim,) for dim in range(len(shape))))


def _shape(tensor: Shaped) -> tuple[int, ...]:
    shape = getattr(tensor, "shape", tensor)
    return require_ints(shape, "a layout needs a tensor or its shape")


def _axis_numbers(matrix: DeviceMatrix, entry: Mapped) -> tuple[int, ...]:
    if entry is None or (isinstance(entry, int) and entry == -1):
        return ()
    if isinstance(entry, int | str):
        return (matrix.axis(entry),)
    if not isinstance(entry, Sequence) or not all(isinstance(axis, int | str) for axis in entry):
        raise LayoutError(
            f"a dimension is mapped to a mesh axis by name or number, to several, or to -1; got {entry!r}"
        )
    return tuple(matrix.axis(axis) for axis in entry)


# --- Pieces of a tensor as numpy arrays, cut by a layout and joined again ---
#
# A piece of an uneven split has padding at its end. Nobody reads it: operators compute on `trimmed` pieces and their
# results are `padded` again, moves fill in what a box has beyond a tensor, and `join` leaves it out. So no operator has
# to know of it, whatever it would do with a value that does not belong there.

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


# --- Common refinements of Device Matrices, on which layouts of different matrices can be compared axis by axis ---
#
# The axes of a matrix correspond to blocks of consecutive places: a 2x4 matrix has blocks of 8, 4 and 1. Matrices whose
# blocks all divide each other have a common refinement (2x4 and 4x2 have 2x2x2; 2x3 and 3x2 have none).


def common_shape(matrices: Iterable[DeviceMatrix]) -> tuple[int, ...] | None:
    """The shape of the coarsest matrix on which all of these can be expressed; None if there is none."""
    matrices = list(matrices)
    blocks = sorted({block for matrix in matrices for block in blocks_of(matrix.shape)}, reverse=True)
    one_order = len({matrix.devices for matrix in matrices}) == 1
    return _steps(blocks) if one_order and all(a % b == 0 for a, b in pairwise(blocks)) else None


def respelled(layout: TensorLayout, matrix: DeviceMatrix) -> TensorLayout:
    """The same placement on a refinement of its matrix."""
    fine = _parts(layout.matrix.shape, matrix.shape)

    def cut(axes: Axes) -> Axes:
        return tuple(part for axis in axes for part in fine[axis])

    return TensorLayout(layout.shape, matrix, tuple(map(cut, layout.tensor_map)), cut(layout.partial), layout.largest)


def refined(layout: TensorLayout, other: DeviceMatrix) -> TensorLayout:
    """The same placement on a matrix of prime axes, the same one for both matrices if there is one."""
    return _refined(layout, layout.matrix.names, other)


@lru_cache(maxsize=65536)
def _refined(layout: TensorLayout, axis_names: tuple[str, ...], other: DeviceMatrix) -> TensorLayout:
    return respelled(layout, _prime_matrix(layout.matrix, axis_names, other))


@lru_cache(maxsize=4096)
def _prime_matrix(matrix: DeviceMatrix, axis_names: tuple[str, ...], other: DeviceMatrix) -> DeviceMatrix:
    shape = tuple(p for size in common_shape([matrix, other]) or matrix.shape for p in prime_factors(size))
    names = []
    for name, fine in zip(axis_names, _parts(matrix.shape, shape)):
        names += [name + (str(i) if len(fine) > 1 else "") for i in range(len(fine))]
    plain = tuple(names) if len(set(names)) == len(names) == len(shape) else ()
    return DeviceMatrix(shape, matrix.devices, plain)


@lru_cache(maxsize=4096)
def _parts(coarse: tuple[int, ...], shape: tuple[int, ...]) -> list[Axes]:
    """For each axis of a coarse shape, the axes of a finer one that it falls into."""
    blocks = blocks_of(shape)
    fine = []
    for axis, size in enumerate(coarse):
        inside = prod(coarse[axis + 1 :])
        fine.append(tuple(i for i in range(len(shape)) if inside <= blocks[i + 1] and blocks[i] <= inside * size))
    return fine


def blocks_of(shape: tuple[int, ...]) -> list[int]:
    """The number of consecutive places within the axes from each axis on: first all of them, finally 1."""
    return [prod(shape[i:]) for i in range(len(shape) + 1)]


def _steps(blocks: list[int]) -> tuple[int, ...]:
    return tuple(a // b for a, b in pairwise(blocks))


def prime_factors(n: int) -> list[int]:
    """The prime factors in ascending order, each as often as it divides the number."""
    factors, p = [], 2
    while n > 1:
        while n % p == 0:
            factors.append(p)
            n //= p
        p += 1
    return factors

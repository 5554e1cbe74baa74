"""Layouts in the terms of GSPMD and GShard: a mesh with named axes, and annotations on tensors.

These functions return layouts, for a shape or for anything that has one. The functions of the same names in
`program.tracing` (exported by `lib.layout.spmd`) annotate a tensor within a program, and return the tensor.

Sources: Xu et al. 2021, "GSPMD", section 3.2 (mesh_split); Lepikhin et al. 2020, "GShard", section 3.2
(replicate, split, shard).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError

from .checks import require_int, require_ints
from .device_matrix import DeviceMatrix
from .tensor_layout import TensorLayout

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

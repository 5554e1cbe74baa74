"""Layouts in the words of GSPMD and GShard: a mesh with names, and annotations on tensors.

Sources: Xu et al. 2021, "GSPMD", section 3.2 (mesh_split); Lepikhin et al. 2020, "GShard", section 3.2
(replicate, split, shard).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lib.layout.errors import LayoutError

from .checks import whole_number, whole_numbers
from .device_matrix import DeviceMatrix
from .tensor_layout import TensorLayout

DEVICES = "devices are counted in whole numbers"

Shaped = Any
"""A shape, or anything that has one."""
Mapped = int | str | None | Sequence[int | str]


def mesh(**axes: int) -> DeviceMatrix:
    """A Device Matrix whose axes have names: mesh(data=2, model=4)."""
    return DeviceMatrix(tuple(axes.values()), names=tuple(axes))


def mesh_split(
    tensor: Shaped, device_mesh: DeviceMatrix, dims_mapping: Sequence[Mapped] | Mapping[int, Mapped]
) -> TensorLayout:
    """The tensor with dimension i split over the mesh axis (or axes) dims_mapping[i], -1 or None for not at all.

    Axes go by number or by name. A mapping from dimensions to axes may leave dimensions out.
    """
    shape = _shape(tensor)
    if not isinstance(device_mesh, DeviceMatrix):
        raise LayoutError(f"mesh_split takes a mesh, as mesh(data=2, model=4) makes it; got {device_mesh!r}")
    if isinstance(dims_mapping, Mapping):
        for dim in dims_mapping:
            if not 0 <= dim < len(shape):
                raise LayoutError(f"there is no dimension {dim}: the tensor of shape {shape} has {len(shape)}")
        entries: list[Mapped] = [dims_mapping.get(dim) for dim in range(len(shape))]
    elif isinstance(dims_mapping, Sequence):
        entries = list(dims_mapping)
    else:
        raise LayoutError(f"a mapping has a mesh axis for each dimension, such as ('data', -1); got {dims_mapping!r}")
    return TensorLayout(shape, device_mesh, tuple(_numbers(device_mesh, entry) for entry in entries))


def replicate(tensor: Shaped, devices: int) -> TensorLayout:
    """The whole tensor on every device."""
    shape = _shape(tensor)
    return TensorLayout(shape, DeviceMatrix((whole_number(devices, DEVICES),)), ((),) * len(shape))


def split(tensor: Shaped, split_dimension: int, num_partitions: int, devices: int | None = None) -> TensorLayout:
    """The tensor in `num_partitions` parts along one dimension.

    With more devices than partitions, consecutive devices hold the same part.
    """
    shape = _shape(tensor)
    split_dimension = whole_number(split_dimension, "a split is along one dimension, by its number")
    num_partitions = whole_number(num_partitions, "a split is into a whole number of partitions")
    devices = num_partitions if devices is None else whole_number(devices, DEVICES)
    if num_partitions < 1 or devices % num_partitions:
        raise LayoutError(f"{devices} devices cannot hold {num_partitions} partitions equally often")
    if not 0 <= split_dimension < len(shape):
        raise LayoutError(f"there is no dimension {split_dimension}: the tensor of shape {shape} has {len(shape)}")
    copies = devices // num_partitions
    matrix = DeviceMatrix((num_partitions, copies) if copies > 1 else (num_partitions,))
    return TensorLayout(shape, matrix, tuple((0,) if dim == split_dimension else () for dim in range(len(shape))))


def shard(tensor: Shaped, device_assignment: Any) -> TensorLayout:
    """The tensor cut as the nested list `device_assignment` is: its entry `[i][j]` names the device of part (i, j)."""
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
    return whole_numbers(shape, "a layout is for a tensor, or for its shape")


def _numbers(matrix: DeviceMatrix, entry: Mapped) -> tuple[int, ...]:
    if entry is None or (isinstance(entry, int) and entry == -1):
        return ()
    if isinstance(entry, int | str):
        return (matrix.axis(entry),)
    if not isinstance(entry, Sequence) or not all(isinstance(axis, int | str) for axis in entry):
        raise LayoutError(
            f"a dimension is mapped to a mesh axis by name or number, to several, or to -1; got {entry!r}"
        )
    return tuple(matrix.axis(axis) for axis in entry)

"""The Device Matrix: an arrangement of the devices along axes.

A mesh in the terms of GSPMD, DTensor and JAX. Source: "Sharding Propagation", section Tensor Layout, in the
documentation of MindSpore 2.1; Xu et al. 2021, "GSPMD", section 3.1.
"""

from dataclasses import dataclass, field
from functools import lru_cache
from math import prod

import numpy as np
from numpy.typing import NDArray

from lib.layout.errors import LayoutError

from .checks import require_ints

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

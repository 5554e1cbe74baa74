"""Common refinements of Device Matrices, on which layouts of different matrices can be compared axis by axis.

The axes of a matrix correspond to blocks of consecutive places: a 2x4 matrix has blocks of 8, 4 and 1.
Matrices whose blocks all divide each other have a common refinement (2x4 and 4x2 have 2x2x2; 2x3 and 3x2 have none).
"""

from collections.abc import Iterable
from functools import lru_cache
from itertools import pairwise
from math import prod

from .device_matrix import DeviceMatrix
from .tensor_layout import Axes, TensorLayout


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

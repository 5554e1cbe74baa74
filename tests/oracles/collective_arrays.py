"""Arrays of all dtypes that can be sent, in many memory orders and shapes, with what every collective must give.

The expected results use numpy's `split`, `stack` and `concatenate`, and none of the engine's code.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

N = 4
TYPES = ("?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16")
ORDERS = {
    "C": lambda a: a.copy("C"),
    "F": lambda a: a.copy("F"),
    "reversed": lambda a: a[::-1].copy()[::-1] if a.ndim else a,
    "every other": lambda a: np.repeat(a, 2, -1)[..., ::2] if a.ndim else a,
}
SHAPES = ((), (4,), (0,), (4, 0), (8, 3), (4, 8, 2), (64, 12))
LARGE = (8, 4, 40)
"""More than a handshake holds, at one byte for each element as well."""


class Case(NamedTuple):
    """One collective of one kind of array; the `wanted` result is that of each device."""

    what: str
    arrays: list[Any]
    name: str
    arguments: dict[str, Any]
    wanted: list[Any]


class Kind(NamedTuple):
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str

    def __str__(self) -> str:
        return f"{self.dtype.str} {self.shape} {self.order}"

    def arrays(self) -> list[Any]:
        """An array of this kind for each device."""
        draw = np.random.default_rng(len(self.shape))
        given = [np.asarray(draw.integers(0, 5, self.shape)).astype(self.dtype) for _ in range(N)]
        arrays = [ORDERS[self.order](a) for a in given]
        assert all(a.dtype == self.dtype and np.array_equal(a, b) for a, b in zip(arrays, given))
        return arrays


def every_kind() -> list[Kind]:
    return [
        Kind(dtype, shape, order) for dtype in map(np.dtype, TYPES) for shape in (*SHAPES, LARGE) for order in ORDERS
    ]


def every_pair() -> list[Kind]:
    """Kinds in which each two of a dtype, a shape and a memory order occur together."""
    orders, shapes = list(ORDERS), (*SHAPES, LARGE)
    return [
        Kind(dtype, shape, orders[(i + j + j // len(orders)) % len(orders)])
        for i, dtype in enumerate(map(np.dtype, TYPES))
        for j, shape in enumerate(shapes)
    ]


def cases(kinds: Iterable[Kind]) -> list[Case]:
    """All collectives of arrays of these kinds, along every axis."""
    return [case for kind in kinds for case in _cases_of(kind)]


def _cases_of(kind: Kind) -> Iterator[Case]:
    dtype, shape, _ = kind
    arrays = kind.arrays()
    native = [a.copy("C") for a in arrays]

    def case(name: str, wanted: list[Any], **arguments: Any) -> Case:
        what = f"{name}({kind}, {arguments})"
        return Case(what, arrays, name, arguments, [np.asarray(w).astype(dtype) for w in wanted])

    for axis in range(len(shape)):
        yield case("all_gather", [np.concatenate(native, axis)] * N, axis=axis)
    if not shape:
        yield case("all_gather", [np.stack(native)] * N)
    axes = [axis for axis, length in enumerate(shape) if length % N == 0]
    for axis in axes:
        pieces = [np.split(a, N, axis) for a in native]
        yield case("all_to_all", [np.concatenate([p[i] for p in pieces], axis) for i in range(N)], axis=axis)
    stacked = np.stack(native)
    for op, reduce in (("sum", np.add.reduce), ("max", np.maximum.reduce), ("prod", np.multiply.reduce)):
        total = reduce(stacked, axis=0, dtype=stacked.dtype)
        yield case("all_reduce", [total] * N, op=op)
        for axis in axes:
            yield case("reduce_scatter", np.split(total, N, axis), op=op, axis=axis)


def wrong(case: Case, device: int, got: Any) -> str:
    """What is wrong with a device's result, which is in C order and its own; "" if nothing."""
    own = got.flags.c_contiguous and got.flags.writeable
    text = difference(got, case.wanted[device]) or ("" if own else str(got.flags))
    return f"{case.what}, device {device}: {text}" if text else ""


def difference(got: Any, wanted: Any) -> str:
    """Where they differ in dtype, shape or numbers; "" if nowhere."""
    seen, right = ((a.dtype.str, a.shape, a.tolist()) for a in (got, wanted))
    return "" if seen == right else f"{str(seen)[:300]}, not {str(right)[:300]}"

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
UFUNCS = {"sum": np.add, "avg": np.add, "max": np.maximum, "min": np.minimum, "prod": np.multiply}
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
    arrays, sizes = kind.arrays(), kind.shape
    axes = [{"axis": axis} for axis, length in enumerate(sizes) if length % N == 0]
    calls: list[tuple[str, dict[str, Any]]] = [("all_gather", {"axis": axis}) for axis in range(len(sizes))]
    calls += [("all_to_all", along) for along in axes] if sizes else [("all_gather", {})]
    for op in ("sum", "max", "prod"):
        calls += [("all_reduce", {"op": op}), *(("reduce_scatter", {"op": op, **along}) for along in axes)]
    for name, arguments in calls:
        yield Case(f"{name}({kind}, {arguments})", arrays, name, arguments, results(name, arrays, **arguments))


def results(call: str, arrays: list[Any], op: str = "sum", axis: int = 0) -> list[Any]:
    """What each device of a group gets, in C order and with the dtype of the arguments."""
    n, dtype = len(arrays), arrays[0].dtype
    native = [a.copy() for a in arrays]
    if call == "all_gather":
        joined = np.concatenate(native, axis) if native[0].ndim else np.stack(native)
        return [joined.astype(dtype) for _ in range(n)]
    if call == "all_to_all":
        pieces = [np.split(a, n, axis) for a in native]
        return [np.concatenate([p[i] for p in pieces], axis).astype(dtype) for i in range(n)]
    wide = np.dtype("f8") if op == "avg" and dtype.kind in "biu" else native[0].dtype
    total = np.asarray(UFUNCS[op].reduce(np.stack(native).astype(wide), axis=0))
    total = np.asarray(total / wide.type(n)) if op == "avg" else total
    total = total.astype(wide if wide != native[0].dtype else dtype)
    return [total.copy() for _ in range(n)] if call == "all_reduce" else [p.copy() for p in np.split(total, n, axis)]


def wrong(case: Case, device: int, got: Any) -> str:
    """What is wrong with a device's result, which is in C order and its own; "" if nothing."""
    own = got.flags.c_contiguous and got.flags.writeable
    text = difference(got, case.wanted[device]) or ("" if own else str(got.flags))
    return f"{case.what}, device {device}: {text}" if text else ""


def difference(got: Any, wanted: Any) -> str:
    """Where they differ in dtype, shape or numbers; "" if nowhere."""
    seen, right = ((a.dtype.str, a.shape, a.tolist()) for a in (got, wanted))
    return "" if seen == right else f"{str(seen)[:300]}, not {str(right)[:300]}"

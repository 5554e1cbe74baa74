"""Small collectives in buffers of a fixed place: the right arrays, made anew each time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lib.engine.call import collective_call
from lib.engine.prepared import prepared_result
from tests.support.collective_arrays import Case, Kind, N, cases, every_kind, wrong

SMALL = [kind for kind in every_kind() if kind.order == "C" and np.prod(kind.shape, dtype=int) < 1000]


def table_of(kind: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    """A place for N arrays, each in a row that is longer than it needs."""
    row = -(-int(np.prod(shape, dtype=int)) * kind.itemsize // 16) * 16 + 48
    strides = (row, *np.empty(shape, kind).strides)
    return np.ndarray((N, *shape), kind, np.zeros(N * row, np.uint8).data, 0, strides)


def mistakes(one: Case) -> list[str]:
    first = one.arrays[0]
    op, axis = one.arguments.get("op", ""), one.arguments.get("axis", 0)
    call = collective_call(one.name, op, axis, first.shape, first.dtype, None, 0, N)
    table = table_of(first.dtype, first.shape)
    found = []
    for device in range(N):
        result = prepared_result(call, table, device)
        table[...] = np.zeros_like(first)
        before = result()
        for place, array in enumerate(one.arrays):
            table[place, ...] = array
        got = result()
        assert not np.shares_memory(got, before)
        assert not np.shares_memory(got, table)
        found.append(wrong(one, device, got))
    return [text for text in found if text]


@pytest.mark.sampled(40)
@pytest.mark.parametrize("kind", SMALL, ids=str)
def test_as_the_pure_functions(kind: Kind) -> None:
    for one in cases([kind]):
        assert mistakes(one) == []


def test_averages() -> None:
    for dtype, wanted in (("int8", 126.0), ("float32", 126.0)):
        call = collective_call("all_reduce", "avg", 0, (3,), np.dtype(dtype), None, 0, N)
        table = table_of(np.dtype(dtype), (3,))
        table[...] = 126
        got = prepared_result(call, table, 2)()
        assert got.tolist() == [wanted] * 3
        assert got.dtype == (np.float64 if dtype == "int8" else np.float32)

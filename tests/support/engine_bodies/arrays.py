"""Collectives give the right arrays: of every dtype, memory order and size, in groups, and one's own."""

from typing import Any

import numpy as np

from lib.engine import collectives
from tests.oracles.collective_arrays import Case, N, cases, every_kind, every_pair, wrong

from .script import all_equal, equal, on_each, several

DTYPES = ("float32", "float64", "float16", "int8", "int64", "uint16", "bool", "complex64")


def reductions(on: str) -> None:
    for op in collectives.REDUCTIONS:
        for dtype in DTYPES:
            xs = several((8, 3), dtype)
            got = on_each(on, lambda me, x, op=op: [me.all_reduce(x, op), me.reduce_scatter(x, op)], xs)
            assert all_equal([g[0] for g in got], collectives.all_reduce(xs, op)), (op, dtype)
            assert all_equal([g[1] for g in got], collectives.reduce_scatter(xs, op)), (op, dtype)


def exchanges(on: str) -> None:
    for dtype in DTYPES:
        for axis in (0, 1, -1):
            xs = several((4, 8), dtype)
            got = on_each(on, lambda me, x, a=axis: [me.all_gather(x, a), me.all_to_all(x, a)], xs)
            assert all_equal([g[0] for g in got], collectives.all_gather(xs, axis))
            assert all_equal([g[1] for g in got], collectives.all_to_all(xs, axis))
            got = on_each(on, lambda me, x, a=axis: me.reduce_scatter(x, axis=a), xs)
            assert all_equal(got, collectives.reduce_scatter(xs, axis=axis))


def _require_right(on: str, some: list[Case]) -> None:
    """Each device compares its own results."""

    def mistakes(me: Any, _: Any) -> list[str]:
        device = int(me.device_id)
        texts = [wrong(one, device, getattr(me, one.name)(one.arrays[device], **one.arguments)) for one in some]
        return [text for text in texts if text][:3]

    assert on_each(on, mistakes) == [[]] * N


def memory_orders(on: str) -> None:
    """Every eleventh kind of array: all dtypes, memory orders and shapes occur, but not all together."""
    _require_right(on, cases(every_kind()[::11]))


def all_memory_orders(on: str) -> None:
    """All of them together; on MPI, where a collective takes longer, each two of them together."""
    _require_right(on, cases(every_kind() if on == "inprocess" else every_pair()))


def averages(on: str) -> None:
    """Of whole numbers and booleans: float64, without wrapping; large arrays too."""
    for dtype in ("int8", "uint8", "int16", "int64", "bool"):
        for length in (8, 8000):
            full = np.full(length, 1 if dtype == "bool" else np.iinfo(dtype).max // 2 + 1, dtype)
            xs = [full if device != 1 else np.zeros_like(full) for device in range(N)]
            got = on_each(on, lambda me, x: [me.all_reduce(x, "avg"), me.reduce_scatter(x, "avg")], xs)
            mean = np.stack(xs).mean(0, dtype=np.float64)
            assert all_equal([g[0] for g in got], [mean] * N), dtype
            assert all_equal([g[1] for g in got], np.split(mean, N)), dtype


def odd_arrays(on: str) -> None:
    """Scalars, empty arrays, other memory orders, views with steps, plain lists."""
    scalars = [np.float32(i) for i in range(N)]
    got = on_each(on, lambda me, _: [me.all_reduce(scalars[me.device_id]), me.all_gather(scalars[me.device_id])])
    assert all(equal(g[0], np.array(6, "float32")) and equal(g[1], np.arange(4, dtype="float32")) for g in got)
    for shape in ((0,), (4, 0), (0, 3)):
        xs = several(shape, "float32")
        got = on_each(on, lambda me, x: [me.all_reduce(x), me.all_gather(x)], xs)
        assert all_equal([g[0] for g in got], collectives.all_reduce(xs))
        assert all_equal([g[1] for g in got], collectives.all_gather(xs))
    xs = several((8, 4, 8), "int32")
    for view in (
        lambda x: np.asfortranarray(x),
        lambda x: x.T,
        lambda x: x[::-2, :, ::2],
        lambda x: x[:, 1:2].squeeze(),
    ):
        seen = [np.ascontiguousarray(view(x)) for x in xs]
        got = on_each(
            on, lambda me, x, v=view: [me.all_reduce(v(x)), me.all_gather(v(x), 1), me.all_to_all(v(x), -1)], xs
        )
        assert all_equal([g[0] for g in got], collectives.all_reduce(seen))
        assert all_equal([g[1] for g in got], collectives.all_gather(seen, 1))
        assert all_equal([g[2] for g in got], collectives.all_to_all(seen, -1))
    got = on_each(on, lambda me, _: me.all_reduce([1, 2.5]))
    assert all(equal(g, np.array([4, 10.0])) for g in got)


def large_arrays(on: str) -> None:
    xs = several((64, 512), "float32")
    got = on_each(on, lambda me, x: [me.all_reduce(x), me.reduce_scatter(x), me.all_gather(x), me.all_to_all(x)], xs)
    for i, name in enumerate(("all_reduce", "reduce_scatter", "all_gather", "all_to_all")):
        assert all_equal([g[i] for g in got], getattr(collectives, name)(xs)), name
    inexact = [np.random.default_rng(i).standard_normal((100, 333)) for i in range(N)]
    assert all_equal(on_each(on, lambda me, x: me.all_reduce(x), inexact), collectives.all_reduce(inexact))
    assert all_equal(
        on_each(on, lambda me, x: me.all_reduce(x, "max"), inexact), collectives.all_reduce(inexact, "max")
    )


def groups(on: str) -> None:
    xs = several((4, 2), "int32")
    pairs = {0: (0, 2), 2: (0, 2), 1: (3, 1), 3: (3, 1)}
    got = on_each(
        on, lambda me, x: [me.all_reduce(x, group=pairs[me.device_id]), me.all_gather(x, group=pairs[me.device_id])], xs
    )
    assert all_equal([got[0][0], got[2][0]], collectives.all_reduce([xs[0], xs[2]]))
    assert all_equal([got[3][1], got[1][1]], collectives.all_gather([xs[3], xs[1]]))
    got = on_each(on, lambda me, x: me.all_reduce(x, group=[me.device_id]), xs)
    assert all_equal(got, xs)

    def by_rows_and_columns(me: Any, x: Any) -> Any:
        row, column = [me.device_id // 2 * 2, me.device_id // 2 * 2 + 1], [me.device_id % 2, me.device_id % 2 + 2]
        for _ in range(3):
            x = me.all_reduce(me.all_reduce(x, group=row), group=column)
        return [x, me.all_reduce(x)]

    total = sum(xs)
    assert all(all_equal(g, [16 * total, 64 * total]) for g in on_each(on, by_rows_and_columns, xs))


def results_are_ones_own(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        ones = [me.all_reduce(x), me.all_gather(x), me.reduce_scatter(x), me.all_to_all(x)]
        alone = me.all_reduce(x, group=[me.device_id])
        for array in (*ones, alone):
            array += 100 * (me.device_id + 1)
        me.barrier()
        return [x, *(array - 100 * (me.device_id + 1) for array in ones)]

    xs = several((4, 4), "int64")
    got = on_each(on, does, xs)
    assert all_equal([g[0] for g in got], xs)
    for i, name in enumerate(("all_reduce", "all_gather", "reduce_scatter", "all_to_all")):
        assert all_equal([g[i + 1] for g in got], getattr(collectives, name)(xs))


BODIES = (
    reductions,
    exchanges,
    memory_orders,
    all_memory_orders,
    averages,
    odd_arrays,
    large_arrays,
    groups,
    results_are_ones_own,
)

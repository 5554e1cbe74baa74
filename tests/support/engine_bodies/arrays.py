"""Collectives give the right arrays: of every dtype, memory order and size, in groups, and one's own."""

from typing import Any

import numpy as np

from lib.engine import collectives
from tests.oracles.collective_arrays import Case, N, cases, every_kind, every_pair, wrong

from .script import all_equal, equal, on_each, several


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


def lists_and_numbers(on: str) -> None:
    """What is no array of numpy is sent as one."""
    got = on_each(on, lambda me, _: [me.all_reduce([1, 2.5]), me.all_gather(np.float32(me.device_id))])
    assert all(equal(g[0], np.array([4, 10.0])) and equal(g[1], np.arange(4, dtype="float32")) for g in got)


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

"""Metering: charges by hand, memory tiers, and the table of a benchmark."""

import gc
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import RuleError
from lib.engine import ShardedEngine, launch
from lib.engine.metering import MAX_NUMBERS_OUT, Meter
from tests.bench import engine
from tests.screens.texts import approved
from tests.support.engine_bodies.script import Script, on_each
from tests.support.refusals import Refused


def test_the_first_numbers_that_leave_arrays_are_free() -> None:
    meter = Meter()
    meter.take_out(MAX_NUMBERS_OUT)
    assert (meter.flops, meter.clock) == (0, 0)
    meter.take_out(3)
    assert (meter.flops, meter.clock) == (3, 3)
    other = Meter()
    other.take_out(MAX_NUMBERS_OUT + 2)
    assert other.flops == 2, "those beyond the free ones"


def test_only_products_of_a_fused_kernel_are_counted_by_their_shapes() -> None:
    kernel = Meter().within_kernel()
    kernel.multiply(7)
    assert kernel.flops == 0
    kernel.compute(7)
    assert kernel.flops == 7


class Scales(ShardedEngine):
    def __init__(self, factor: Any) -> None:
        self.factor = factor

    def load_checkpoint(self, params: Any) -> None:
        """There are no parameters."""

    def forward(self, x: Any) -> Any:
        return x / self.factor

    def backward(self, grads: Any) -> None:
        """Not called."""


@pytest.mark.parametrize(
    ("dtype", "factor", "is_widened"),
    [
        (np.float32, 4, False),
        (np.float32, 16**0.5, False),
        (np.float32, np.float32(4), False),
        (np.float32, np.sqrt(16), True),
        (np.float64, np.sqrt(16), False),
    ],
)
def test_a_float64_number_doubles_the_bytes_of_float32_arrays_at_a_line(
    dtype: Any, factor: Any, is_widened: bool
) -> None:
    x = np.ones(6, dtype)
    with launch(Scales, 1, factor=factor) as run:
        (result,) = run.forward(x)
        (reading,) = run.meters
    assert (result.nbytes == 2 * x.nbytes) == is_widened
    assert reading.widened_line == (Scales.forward.__code__.co_firstlineno + 1 if is_widened else 0)


# === Memory tiers ===


W = np.ones((16, 16), np.float32)


def test_a_fetch_takes_memory_from_its_request_until_its_array_is_freed() -> None:
    def does(me: Any, x: Any) -> Any:
        meter = me._port.meter
        me.host.put("w", x)
        live = [meter.live]
        coming = me.host.fetch_async("w")
        live.append(meter.live)
        array = coming.wait()
        live.append(meter.live)
        del array
        return [*live, meter.live]

    assert on_each("inprocess", does, W, metered=True)[0] == [1024, 2048, 2048, 1024]


def test_what_is_put_of_lent_parameters_is_not_charged_to_the_device() -> None:
    class Keeps(Script):
        def load_checkpoint(self, params: Any) -> None:
            self.host.put("w", params["w"])
            self.disk.put("w", params["w"][:4])

    with launch(Keeps, 2, None) as run:
        run.load_checkpoint({"w": W})
        reading = run.meters[1]
    assert (reading.live, reading.peak) == (0, 0)
    assert (reading.host["live"], reading.disk["live"]) == (1024, 256)


def test_without_meters_arrays_are_plain_and_fetched_immediately() -> None:
    def does(me: Any, x: Any) -> Any:
        me.disk.put("w", x)
        coming = me.disk.fetch_async("w")
        return [coming.done(), type(coming.wait()).__name__]

    assert on_each("inprocess", does, W) == [[True, "ndarray"]] * 4


@pytest.mark.slow
def test_the_files_of_a_disk_go_with_the_run() -> None:
    def does(me: Any, x: Any) -> Any:
        me.disk.put("w", x)
        return str(me.disk._store._folder)

    with launch(Script, 2, does) as run:
        folders = [Path(folder) for folder in run.forward(W)]
        assert [len(list(folder.iterdir())) for folder in folders] == [1, 1]
    del run
    gc.collect()
    assert not any(folder.exists() for folder in folders)


def test_an_array_of_the_same_name_takes_the_place_of_the_old_one() -> None:
    def does(me: Any, x: Any) -> Any:
        for tier in (me.host, me.disk):
            tier.put("w", x)
            tier.put("w", x[:8])
        return [len(me.host), len(me.disk), len(list(me.disk._store._folder.iterdir()))]

    with launch(Script, 1, does) as run:
        assert run.forward(W) == [[1, 1, 1]]
        for figures in (run.meters[0].host, run.meters[0].disk):
            assert figures == {"read": 0, "written": 1536, "live": 512, "peak": 1024}


@given(
    work=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=1, max_size=8),
    byte_time=st.integers(0, 9),
)
def test_the_clock_is_that_of_a_link_and_a_device_side_by_side(work: list[tuple[int, int]], byte_time: int) -> None:
    """All fetches are asked for at once, then waited for one by one, each with products of its own. The link is done
    with the i-th after the sizes of the first i; the device begins its products when both are ready."""

    def does(me: Any, x: Any) -> Any:
        coming = [me.host.fetch_async(str(i)) for i in range(len(work))]
        for fetch, (_, products) in zip(coming, work):
            fetch.wait()
            for _ in range(products):
                x @ x
        return None

    class Loads(Script):
        def load_checkpoint(self, params: Any) -> None:
            for i, (rows, _) in enumerate(work):
                self.host.put(str(i), np.ones((rows, 2), np.float32))

    with launch(Loads, 1, does, byte_time={"host": byte_time}) as run:
        run.load_checkpoint({"none": W})
        loaded = run.meters[0].clock
        run.forward(np.ones((2, 2), np.float32))
        elapsed = run.meters[0].clock - loaded
    clock = 0
    for arrived, (_, products) in zip(accumulate(8 * rows * byte_time for rows, _ in work), work):
        clock = max(clock, arrived) + 16 * products
    assert elapsed == clock
    assert loaded == sum(8 * rows * byte_time for rows, _ in work)


REFUSED: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "a name that is not there": (
        lambda me, _: me.host.fetch("w"),
        "device 0 of 4, host.fetch('w'): the host has no 'w'; put it there first",
    ),
    "a name that was dropped": (
        lambda me, x: [
            me.disk.put("grad0", x),
            me.disk.put("grad1", x),
            me.disk.drop("grad1"),
            me.disk.fetch_async("grad1"),
        ],
        "device 0 of 4, disk.fetch_async('grad1'): the disk has no 'grad1'; did you mean 'grad0'?",
    ),
    "dropping nothing": (
        lambda me, _: me.host.drop("w"),
        "device 0 of 4, host.drop('w'): the host has no 'w'; put it there first",
    ),
    "objects": (
        lambda me, _: me.host.put("w", np.array([None])),
        "device 0 of 4, host.put('w'): arrays of Python objects cannot be stored; convert them to numbers with astype",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_is_refused_with_who_what_and_what_to_do(what: str) -> None:
    does, wanted = REFUSED[what]
    with pytest.raises(RuleError) as caught:
        on_each("inprocess", does, W)
    assert str(caught.value).startswith(wanted), caught.value


@pytest.mark.parametrize("byte_time", [{"tape": 1}, {"host": -1}, {"disk": 0.5}])
def test_impossible_byte_times_are_refused(byte_time: Any) -> None:
    with Refused("no byte_time"):
        launch(Script, 2, None, byte_time=byte_time)


# === The table of a benchmark ===


def times(slow: str = "") -> engine.Times:
    """Ten turns in which everything takes as long as bare mpi4py, but `slow` nine times as long in most of them; the
    machine gets slower and slower."""
    cells = [f"{name} {nbytes}" for nbytes in engine.SIZES for name in engine.OPERATIONS]
    return {
        cell: [(turn + 1) * (9 if cell == slow and turn > 3 else 1) * 1e-5 for turn in range(10)]
        for cell in (f"{what} {cell}" for what in ("bare", "in process", "on MPI") for cell in cells)
    }


def test_a_turn_is_compared_with_the_one_beside_it() -> None:
    found = times("on MPI send 256")
    assert engine.ratios(found, "on MPI", "send 256") == (9, 1)
    assert engine.ratios(found, "in process", "send 256") == (1, 1)


def test_the_last_line_says_which_targets_are_met() -> None:
    approved("bench_table", "the last line says which targets are met", engine.table(times())[-1])
    lines = engine.table(times("on MPI send 256"))
    approved("bench_table", "the last line says which targets are met, 2", lines[-1])
    (cell,) = (line for line in lines if line.startswith("  send of 256 B"))
    assert "1.00 (1.00) [1] OK" in cell
    assert "9.00 (1.00) [7] SLOW" in cell

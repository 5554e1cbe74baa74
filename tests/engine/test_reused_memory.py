"""Large results are made in memory that nobody uses any more, and only there."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from lib.engine.transports import reused_memory
from lib.engine.transports.reused_memory import ReusedMemory
from tests.support.engine_bodies.script import Script

FLOAT = np.dtype("float32")
LARGE = (512, 1024)


def address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_only_when_no_view_is_left() -> None:
    memory = ReusedMemory()
    first = memory.empty(LARGE, FLOAT)
    place, view = address(first), first[1:].T[::2]
    del first
    second = memory.empty(LARGE, FLOAT)
    assert address(second) != place
    view[:] = 1  # what was there may be no number
    del view
    assert address(memory.empty((1024, 512), np.dtype(">i4"))) == place


@pytest.mark.parametrize("dtype", [">f4", "<c16", "M8[ms]", "U2", "?"])
def test_arrays_are_as_numpy_makes_them(dtype: str) -> None:
    got, wanted = ReusedMemory().empty((1 << 20, 2), np.dtype(dtype)), np.empty((1 << 20, 2), dtype)
    assert (got.dtype.str, got.shape, got.strides) == (wanted.dtype.str, wanted.shape, wanted.strides)
    assert got.flags.writeable
    assert got.flags.aligned


def test_little_is_kept_and_nothing_after_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "MAX_UNUSED_BYTES", 3 << 20)
    memory = ReusedMemory()
    arrays = [memory.empty(LARGE, FLOAT) for _ in range(4)]  # of 2 MiB, of which one may be kept
    places = {address(array) for array in arrays}
    arrays.clear()
    assert sum(len(blocks) for blocks in memory._unused.values()) == 1
    left = memory.empty(LARGE, FLOAT)
    assert address(left) in places
    memory.close()
    left[:] = 1
    del left
    assert memory._unused == {}


def test_blocks_of_a_size_that_is_no_longer_used_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "MAX_UNUSED_BYTES", 4 << 20)
    memory = ReusedMemory()
    arrays = [memory.empty(LARGE, FLOAT), memory.empty(LARGE, FLOAT)]
    arrays.clear()
    larger = memory.empty((768, 1024), FLOAT)
    place = address(larger)
    del larger
    assert address(memory.empty((768, 1024), FLOAT)) == place
    assert memory.empty((2048, 1024), FLOAT).nbytes == 8 << 20  # too large to be kept
    assert sum(size * len(blocks) for size, blocks in memory._unused.items()) <= 4 << 20


def test_a_run_reuses_the_results_that_its_class_has_dropped() -> None:
    def gathers(me: Any, x: Any) -> set[int]:
        return {address(me.all_gather(x)) for _ in range(5)}

    with launch(Script, 2, gathers, metered=False) as run:
        places = run.forward(np.ones(LARGE, FLOAT))
    assert len(set.union(*places)) <= 4  # of ten: two at a time, and those of the next call


def test_large_results_made_by_several_threads_are_charged_once() -> None:
    def body(me: Any, x: Any) -> list[int]:
        before = me._port.meter.live
        kept = [me.all_gather(x), me.all_to_all(x)]
        during = me._port.meter.live
        kept.clear()
        gc.collect()
        return [during - before, me._port.meter.live - before]

    with launch(Script, 2, body) as run:
        assert run.forward(np.ones(LARGE, FLOAT)) == [[3 * 2 << 20, 0]] * 2


def test_an_error_in_one_thread_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "_processors", lambda: 2)
    memory = ReusedMemory()
    with pytest.raises(ZeroDivisionError):
        memory.moved(lambda device: np.ones(1 // device), range(2), 1 << 30)
    memory.close()


def test_one_thread_does_it_where_no_other_may_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any) -> Any:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(reused_memory, "_processors", lambda: 2)
    monkeypatch.setattr(ThreadPoolExecutor, "submit", refused)
    memory = ReusedMemory()
    assert [array[0] for array in memory.moved(lambda device: np.full(1, device), range(3), 1 << 30)] == [0, 1, 2]
    memory.close()


def test_the_limit_of_numpys_threads_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    memory = ReusedMemory()
    threads = {get_ident()}
    memory.moved(lambda device: np.full(1, threads.add(get_ident()) or device), range(3), 1 << 30)
    assert threads == {get_ident()}


def test_threads_never_get_the_same_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "_processors", lambda: 8)
    memory = ReusedMemory()
    for _ in range(20):
        arrays = memory.moved(lambda _: memory.empty(LARGE, FLOAT), range(8), 1 << 30)
        assert len({address(array) for array in arrays}) == 8
        del arrays
    memory.close()


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::-1, ::2],
        lambda x: x[:1],
        lambda x: x[:, :1].astype(">f8"),
        lambda x: x.reshape(-1)[:131_073],
    ],
)
def test_a_large_copy_in_parts_is_the_array(view: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reused_memory, "MIN_MOVED_BYTES", 1 << 12)
    monkeypatch.setattr(reused_memory, "MIN_BYTES", 1 << 12)
    monkeypatch.setattr(reused_memory, "CHUNK_BYTES", 5000)
    memory, array = ReusedMemory(), view(np.random.default_rng(0).random((1031, 257)))
    copied = memory.copy(array)
    memory.close()
    assert copied.dtype.str == array.dtype.str
    assert copied.flags.c_contiguous
    assert not np.shares_memory(copied, array)
    np.testing.assert_array_equal(copied, array)


def test_an_error_in_one_part_is_raised_and_ends_the_work() -> None:
    memory = ReusedMemory()

    def move(item: int) -> int:
        if item == 3:
            raise ValueError("no")
        return item

    with pytest.raises(ValueError, match="no"):
        memory.moved(move, range(10), 1 << 30)
    assert memory.moved(lambda item: item * item, range(5), 1 << 30) == [0, 1, 4, 9, 16]
    memory.close()

"""Tests that every transport must pass: bodies that run on four devices, in process and under mpiexec alike.

A body takes `on`, the name of a transport. Run as a program (by mpiexec), this file runs those that it is given.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from lib import PuzzleError
from lib.engine import Reader, ShardedEngine, Writer, collectives, launch
from tests.support.collective_arrays import Case, N, cases, wrong


class Script(ShardedEngine):
    """A device that does what a function says."""

    def __init__(self, does: Callable[..., Any]) -> None:
        self.does = does

    def load_checkpoint(self, params: Any) -> None:
        self.params = params

    def forward(self, x: Any) -> Any:
        return self.does(self, x)

    def backward(self, grads: Any) -> Any:
        return self.does(self, grads)


def on_each(on: str, does: Callable[..., Any], x: Any = 0, n: int = N, metered: bool = False) -> list[Any]:
    """Runs a function on every device, for an input of each or one for all; the results by device."""
    with launch(Script, n, does, on=on, metered=metered, patience=PATIENCE) as run:
        return run.forward(x)


PATIENCE = 0.3
"""Seconds until a wait on MPI is looked into: short here, so that the tests of deadlocks are."""


def refused(on: str, does: Callable[..., Any], x: Any = 0) -> str:
    """The message with which the run is refused."""
    return refusal_of(lambda: on_each(on, does, x))


def refusal_of(call: Callable[[], Any]) -> str:
    try:
        call()
    except PuzzleError as why:
        return f"{type(why).__name__}: {why}"
    raise AssertionError("this was not refused")


def equal(got: Any, wanted: Any) -> bool:
    same = got.shape == wanted.shape and got.dtype == wanted.dtype
    return bool(same and np.array_equal(got, wanted, equal_nan=got.dtype.kind in "fc"))


def all_equal(got: list[Any], wanted: list[Any]) -> bool:
    return len(got) == len(wanted) and all(map(equal, got, wanted))


def several(shape: tuple[int, ...], dtype: str, seed: int = 1, order: str = "C") -> list[Any]:
    """An array for each device, small whole numbers."""
    draw = np.random.default_rng(seed)
    return [np.array(draw.integers(-3, 4, shape), dtype=dtype, order=order) for _ in range(N)]  # type: ignore[call-overload]


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
    """Each device compares its own results, because pickling between processes loses the byte order of dates."""

    def mistakes(me: Any, _: Any) -> list[str]:
        device = int(me.device_id)
        texts = [wrong(one, device, getattr(me, one.name)(one.arrays[device], **one.arguments)) for one in some]
        return [text for text in texts if text][:3]

    assert on_each(on, mistakes) == [[]] * N


def byte_and_memory_orders(on: str) -> None:
    """Every eleventh kind of array: all dtypes, byte orders, memory orders and shapes occur, but not all together."""
    _require_right(on, cases(slice(None, None, 11)))


def all_byte_and_memory_orders(on: str) -> None:
    _require_right(on, cases())


def averages(on: str) -> None:
    """Of whole numbers and booleans: float64, without wrapping; large arrays too."""
    for dtype in ("int8", "uint8", "int16", ">i2", "int64", "bool"):
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


def messages(on: str) -> None:
    """In sending order, copied immediately, of any shape; a ring of sends before receives."""

    def does(me: Any, x: Any) -> Any:
        right, left = (me.device_id + 1) % me.num_devices, (me.device_id - 1) % me.num_devices
        me.send(right, x)
        x += 1
        me.send(right, x.T[::2])
        me.send(right, np.float32(3))
        me.send(right, np.zeros((0, 2), bool))
        return [me.receive(left) for _ in range(4)]

    xs = several((3, 2), "int16")
    before = [x.copy() for x in xs]
    got = on_each(on, does, xs)
    for i in range(N):
        left = before[i - 1]
        assert all_equal(got[i], [left, (left + 1).T[::2], np.array(3, "float32"), np.zeros((0, 2), bool)])


def one_sided_puts(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        buffer = me.symmetric((N, 3), "float32")
        other = me.symmetric(5, "int32")
        right = (me.device_id + 1) % N
        future = me.send_async(x, buffer[me.device_id], right)
        future.wait()
        x[:] = -1
        me.send_async(np.arange(3, dtype="int32"), other[::2], right)
        before = buffer.copy()
        me.barrier()
        return [before, buffer, other]

    xs = [np.full(3, i, "float32") for i in range(1, N + 1)]
    got = on_each(on, does, xs)
    for i in range(N):
        wanted = np.zeros((N, 3), "float32")
        wanted[i - 1] = (i - 1) % N + 1
        assert all_equal(got[i], [np.zeros((N, 3), "float32"), wanted, np.array([0, 0, 1, 0, 2], "int32")])


def barriers_of_groups(on: str) -> None:
    """A group's barrier delivers the puts between its members, and only those; others do not wait."""

    def does(me: Any, x: Any) -> Any:
        device = int(me.device_id)
        buffer = me.symmetric(N, "int32")
        if device == 3:
            me.send_async(np.array([9], "int32"), buffer[3:], 0)
            first = buffer.copy()
        else:
            group = [2, 0, 1]
            me.send_async(np.array([device + 1], "int32"), buffer[device : device + 1], (device + 1) % 3)
            me.send_async(np.array([device + 1], "int32"), buffer[device : device + 1], 3)
            me.barrier(group=group)
            first = buffer.copy()
            me.barrier(group)
            me.barrier(group=[device])
        me.barrier()
        return [first, buffer.copy()]

    got = on_each(on, does, metered=True)
    firsts = [[0, 0, 3, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 0]]
    assert [g[0].tolist() for g in got] == firsts
    assert [g[1].tolist() for g in got] == [[0, 0, 3, 9], *firsts[1:3], [1, 2, 3, 0]]
    text = refused(on, lambda me, _: me.barrier(group=[0, 1] if me.device_id < 2 else [1, 2]))
    assert "device 3 of 4, barrier(): device 3 is not in group (1, 2)" in text, text
    text = refused(on, lambda me, _: me.barrier(group=[0, 1]) if me.device_id == 0 else None)
    assert "device 0 waits in barrier() in group (0, 1), line " in text, text


def empty_puts(on: str) -> None:
    """A slice that is empty on some devices can be put, as any other; an array elsewhere cannot, empty or not."""

    def does(me: Any, x: Any) -> Any:
        buffer = me.symmetric((4, 2), "float32")
        nothing = me.symmetric((0, 3), "int8")
        me.send_async(x[: me.device_id], buffer[: me.device_id], (me.device_id + 1) % N)
        me.send_async(x[:0], buffer[4:], (me.device_id + 1) % N)
        me.send_async(np.zeros((0, 3), "int8"), nothing, (me.device_id + 1) % N)
        me.barrier()
        return buffer

    for metered in (False, True):
        got = on_each(on, does, np.ones((4, 2), "float32"), metered=metered)
        assert [float(g.sum()) for g in got] == [2.0 * ((i - 1) % N) for i in range(N)]
    text = refused(on, lambda me, _: (me.symmetric(3), me.send_async(np.zeros(0), np.zeros(0), (me.device_id + 1) % N)))
    assert "dst is not a view of a symmetric buffer" in text, text


def numbers_answer_when_called(on: str) -> None:
    got = on_each(on, lambda me, _: [me.device_id + 0, me.device_id(), me.num_devices + 0, me.num_devices()])
    assert got == [[i, i, N, N] for i in range(N)]


def stage(me: Any, x: Any) -> Any:
    """Of a pipeline: writes this device's digit behind those of the devices before it."""
    if me.device_id:
        x = me.receive(me.device_id - 1)
    x = x * 10 + me.device_id
    if me.device_id == N - 1:
        return x
    me.send(me.device_id + 1, x)
    return None


def streams(on: str) -> None:
    with launch(Script, N, stage, on=on, metered=False) as run:
        assert [int(y) for y in run.inference_loop(np.array(i) for i in range(1, 7))] == [
            i * 10**4 + 123 for i in range(1, 7)
        ]
    with launch(Script, N, lambda me, x: x + me.device_id, on=on, metered=False) as run:
        assert [list(map(int, y)) for y in run.inference_loop(iter([np.array(5)]))] == [[5, 6, 7, 8]]
        assert list(run.inference_loop([])) == []


def endless_streams(on: str) -> None:
    """Outputs come while the stream goes on, however it is left; and what was under way disturbs no later run."""
    pulled: list[int] = []

    def endless() -> Any:
        while True:
            pulled.append(len(pulled))
            yield np.full(5000, len(pulled))

    for taken in (1, 5):
        pulled.clear()
        with launch(Script, N, stage, on=on, metered=False) as run:
            outputs = run.inference_loop(endless())
            assert [int(next(outputs)[0]) for _ in range(taken)] == [i * 10**4 + 123 for i in range(1, taken + 1)]
            assert len(pulled) <= taken + 4 * N + 1  # a fast device is at most that far ahead of the others
            assert "a stream of this run is still open" in refusal_of(lambda run=run: run.forward(0))
    with launch(Script, N, stage, on=on, metered=False) as run:
        for y in run.inference_loop(endless()):
            if y[0] > 3 * 10**4:
                break
        del y
        assert "because its stream was left before the end" in refusal_of(lambda run=run: run.forward(0))
    assert on_each(on, lambda me, x: me.all_reduce(x), np.ones(1)) == [N] * N


def loops_of_ones_own(on: str) -> None:
    """A loop may write when it likes: here the sum of every three inputs, and the rest at the end."""

    class Threes(Script):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            kept = []
            for x in input_stream:
                kept.append(x)
                if len(kept) == 3:
                    output_stream.write(self.all_reduce(sum(kept)))
                    kept.clear()
            if self.device_id == 1:
                output_stream.write(np.array(-len(kept)))

    with launch(Threes, N, None, on=on, metered=False) as run:
        got = list(run.inference_loop(np.array(i) for i in range(7)))
    assert [list(map(int, y)) for y in got[:2]] == [[12] * N, [48] * N]
    assert [int(y) for y in got[2:]] == [-1]


class Assembly(ShardedEngine):
    """A pipeline for inference: the first device reads, the others serve whoever sends, and the last one writes."""

    def __init__(self) -> None:
        self.digit = int(self.device_id)

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def forward(self, x: Any) -> Any:
        return x * 10 + self.digit

    def inference_loop(self, input_stream: Reader[Any], output_stream: Writer[Any]) -> None:
        if self.device_id == 0:
            for x in input_stream:
                self.send(1, self.forward(x))
            return
        while True:
            y = self.forward(self.receive(self.device_id - 1))
            if self.device_id == self.num_devices - 1:
                output_stream.write(y)
            else:
                self.send(self.device_id + 1, y)


class ReadingAssembly(Assembly):
    """The same, but every device reads the stream to know when it ends."""

    def inference_loop(self, input_stream: Reader[Any], output_stream: Writer[Any]) -> None:
        for x in input_stream:
            y = self.forward(self.receive(self.device_id - 1) if self.device_id else x)
            if self.device_id == self.num_devices - 1:
                output_stream.write(y)
            else:
                self.send(self.device_id + 1, y)


def only_the_last_device_writes(on: str) -> None:
    for cls in (Assembly, ReadingAssembly):
        with launch(cls, N, on=on, patience=PATIENCE) as run:
            assert list(map(int, run.inference_loop(np.array(i) for i in range(1, 7)))) == [
                i * 10**4 + 123 for i in range(1, 7)
            ]
            assert [int(y) for y in run.inference_loop([np.array(2)])] == [20123]
            assert "Assembly defines no backward" in refusal_of(lambda run=run: run.backward(0))


def outputs_come_while_the_stream_goes_on(on: str) -> None:
    """The stream is read no faster than a full pipeline needs, on MPI with some messages between two devices."""
    ahead = N if on == "inprocess" else 4 * N * N
    for cls in (Assembly, ReadingAssembly):
        taken: list[int] = []
        pulled: list[int] = []

        def endless(taken: list[int] = taken, pulled: list[int] = pulled) -> Any:
            while True:
                assert len(pulled) <= len(taken) + ahead
                pulled.append(len(pulled))
                yield np.full(20, len(pulled))

        with launch(cls, N, on=on, metered=False, patience=PATIENCE) as run:
            for y in run.inference_loop(endless()):
                taken.append(int(y[0]))
                if len(taken) == 300:
                    break
        assert taken == [i * 10**4 + 123 for i in range(1, 301)]


def rows_of_unlike_loops(on: str) -> None:
    """Devices that write for the same inputs share a row, also if each writes only for some."""

    class Turns(Script):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            for i, x in enumerate(input_stream):
                if self.device_id in (i % N, (i + 1) % N):
                    output_stream.write(x + self.device_id)
                else:
                    output_stream.write(None)

    with launch(Turns, N, None, on=on, metered=False, patience=PATIENCE) as run:
        rows = list(run.inference_loop(np.array(10 * i) for i in range(5)))
    for i, row in enumerate(rows):
        writers = i % N, (i + 1) % N
        assert [y if y is None else int(y) for y in row] == [10 * i + d if d in writers else None for d in range(N)]
    assert len(rows) == 5


def a_wait_in_a_stream_for_nobody(on: str) -> None:
    """A device that reads inputs, or waits in a circle, is not ended with the stream."""

    class OneMore(ReadingAssembly):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            super().inference_loop(input_stream, output_stream)
            if self.device_id == 2:
                self.receive(1)

    class Circle(Assembly):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            if self.device_id == 0:
                list(input_stream)
            else:
                self.receive(self.device_id % (N - 1) + 1)

    for cls, words in (
        (OneMore, "device 2 waits in receive(1), line "),
        (Circle, "device 3 waits in receive(1), line "),
    ):

        def streamed(cls: Any = cls) -> None:
            with launch(cls, N, on=on, metered=False, patience=PATIENCE) as run:
                list(run.inference_loop([np.array(1)]))

        text = refusal_of(streamed)
        assert text.startswith("DeadlockError"), text
        assert words in text, text


def a_raise_in_a_stream(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        if me.device_id == 2 and x == 4:
            raise ZeroDivisionError("in the fourth")
        return stage(me, x)

    outputs: list[int] = []
    caught: BaseException | None = None
    try:
        with launch(Script, N, does, on=on, metered=False, patience=PATIENCE) as run:
            for y in run.inference_loop(np.array(i) for i in range(1, 9)):
                outputs.append(int(y))
    except ZeroDivisionError as why:
        caught = why
    assert "raised on device 2 of 4, in inference_loop" in " ".join(getattr(caught, "__notes__", []))
    assert outputs == [i * 10**4 + 123 for i in range(1, len(outputs) + 1)]
    assert len(outputs) <= 3


def meters(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        w = np.ones((16, 16), np.float32)
        y = x @ w
        y = np.einsum("ab,bc->ac", y, w)
        me.all_reduce(y)
        me.reduce_scatter(y)
        me.all_to_all(y, axis=1)
        z = me.all_gather(y[:2])
        me.send((me.device_id + 1) % N, z)
        me.receive((me.device_id - 1) % N)
        me.barrier()
        return y

    with launch(Script, N, does, on=on, metered=True) as run:
        run.forward(np.ones((8, 16), np.float32))
        first = run.meters
    for reading in first:
        assert reading.flops == 2 * 2 * 8 * 16 * 16
        assert reading.sent == 768 + 384 + 384 + 3 * 128 + 512
        assert (reading.collectives, reading.messages) == (4, 1)
        assert reading.peak == 1024 + 4 * 512
        assert reading.clock == reading.flops


def slower_memories(on: str) -> None:
    """Names, copies, odd arrays; each link carries one array at a time, and computing goes on meanwhile."""

    def does(me: Any, x: Any) -> Any:
        for tier in (me.host, me.disk):
            tier.put("a/b", x)
            tier.put("empty", np.zeros((0, 3), np.int8))
            tier.put("view", np.asfortranarray(np.arange(12.0).reshape(3, 4))[::2].T)
            tier.put("scalar", 2.5)
            tier.put("scalar", np.float32(3))
            x += 1
            tier.drop("view") if me.device_id else None
        return [tier.fetch(name) for tier in (me.host, me.disk) for name in tier]

    xs = several((2, 3), "float32")
    before = [x.copy() for x in xs]
    got = on_each(on, does, xs, metered=True)
    view = np.arange(12.0).reshape(3, 4)[::2].T
    for i in range(N):
        kept = [np.zeros((0, 3), np.int8), *([] if i else [view]), np.array(3, np.float32)]
        assert all_equal(got[i], [before[i], *kept, before[i] + 1, *kept])

    def overlaps(me: Any, w: Any) -> Any:
        me.host.put("w", w)  # until 2,048
        me.disk.put("w", w)  # until 2,048 + 16,384
        first, second = me.host.fetch_async("w"), me.host.fetch_async("w")
        third = me.disk.fetch_async("w")
        w @ w  # until 2,048 + 16,384 + 8,192: the host's link is free again, the disk's is not
        arrived = [first.done(), second.done(), third.done()]
        y = me.all_reduce(first.wait() + second.wait() + third.wait())
        return [arrived, y]

    with launch(Script, N, overlaps, on=on, byte_time={"host": 2, "disk": 16}) as run:
        got = run.forward([np.full((16, 16), i, np.float32) for i in range(N)])
        meters = run.meters
    for arrived, y in got:
        assert arrived == [True, True, False]
        assert equal(y, np.full((16, 16), 3 * (0 + 1 + 2 + 3), np.float32))
    for reading in meters:
        assert reading.host == {"read": 2048, "written": 1024, "live": 1024, "peak": 1024}
        assert reading.disk == {"read": 1024, "written": 1024, "live": 1024, "peak": 1024}
        assert reading.clock == 2048 + 16_384 + 16_384
        assert reading.flops == 8192


def mismatches(on: str) -> None:
    def refusal(does: Callable[..., Any]) -> str:
        return refused(on, does)

    ones = np.ones((2, 4), np.float32)
    text = refusal(lambda me, _: me.all_reduce(ones) if me.device_id != 1 else me.all_gather(ones))
    assert text.startswith("MismatchError: device "), text
    assert "calls all_reduce(float32 (2, 4), op='sum')" in text, text
    assert "device 1 calls all_gather(float32 (2, 4), axis=0)" in text, text
    text = refusal(lambda me, _: me.all_reduce(ones[: 2 - (me.device_id == 2)]))
    assert "device 2 calls all_reduce(float32 (1, 4), op='sum')" in text, text
    text = refusal(lambda me, _: me.all_reduce(ones.astype("int32" if me.device_id == 3 else "float32")))
    assert "device 3 calls all_reduce(int32 (2, 4), op='sum')" in text, text
    text = refusal(lambda me, _: me.all_reduce(ones, "max" if me.device_id == 0 else "min"))
    assert "device 0 calls all_reduce(float32 (2, 4), op='max')" in text, text
    text = refusal(lambda me, _: me.all_reduce(ones, group=[0, 1] if me.device_id == 0 else None))
    assert "device 0 calls all_reduce(float32 (2, 4), op='sum') in group (0, 1)" in text, text
    assert "in group (0, 1, 2, 3); every device of a group" in text or "in group (0, 1, 2, 3), but device 0" in text, (
        text
    )
    text = refusal(lambda me, _: me.symmetric(3 + me.device_id))
    assert "symmetric" in text, text
    text = refusal(lambda me, _: me.barrier() if me.device_id else me.all_reduce(ones))
    assert "barrier()" in text, text
    assert "same collective calls" in text


def deadlocks(on: str) -> None:
    text = refused(on, lambda me, _: me.receive((me.device_id + 1) % N))
    assert text.startswith("DeadlockError: nobody can move: "), text
    for i in range(N):
        assert f"device {i} waits in receive({(i + 1) % N}), line " in text, text
    assert "engine_bodies.py" in text
    ring = {i: (i, (i + 1) % N) for i in range(N)}
    text = refused(on, lambda me, _: me.all_reduce(np.ones(2), group=ring[me.device_id]))
    assert "device 3 waits in all_reduce(float64 (2,), op='sum') in group (3, 0), line " in text, text
    text = refused(on, lambda me, _: me.barrier() if me.device_id else None)
    assert "device 0 has returned" in text, text
    assert "devices 1 to 3 wait in barrier(), line " in text, text


def calls_of_another_thread(on: str) -> None:
    calls: list[Callable[[Any], Any]] = [
        lambda me: me.all_reduce(np.ones(1)),
        lambda me: me.barrier(),
        lambda me: me.send(0, np.ones(1)),
        lambda me: me.receive(0),
    ]
    for call in calls:

        def does(me: Any, _: Any, call: Any = call) -> None:
            if me.device_id == 1:
                with ThreadPoolExecutor(1) as pool:
                    pool.submit(call, me).result()

        text = refused(on, does)
        assert "device 1 of 4 communicates from a thread that its code has started; only the thread" in text, text


def a_raise_ends_all(on: str) -> None:
    def does(me: Any, x: Any) -> Any:
        if me.device_id == 2:
            raise ZeroDivisionError("the player's own mistake")
        return me.receive(3) if me.device_id == 0 else me.barrier()

    caught: BaseException | None = None
    try:
        on_each(on, does)
    except ZeroDivisionError as why:
        caught = why
    assert str(caught) == "the player's own mistake"
    notes = " ".join(getattr(caught, "__notes__", []))
    assert "raised on device 2 of 4, in forward" in notes, notes


def many_launches(on: str) -> None:
    """More than an MPI has communicators: those that fail, and clean ones with groups and large arrays."""

    def fails(me: Any, x: Any) -> Any:
        if me.device_id == 2:
            raise KeyError(int(x))
        me.send((me.device_id + 1) % N, x)
        return me.barrier()

    for number in range(1200):
        caught: list[Any] = []
        try:
            on_each(on, fails, np.array(number))
        except KeyError as why:
            caught.extend(why.args)
        assert caught == [number]
    pair = {0: (0, 1), 1: (0, 1), 2: (2, 3), 3: (2, 3)}
    for number in range(2100):
        got = on_each(on, lambda me, x: me.all_gather(x, group=pair[me.device_id]), np.full(600, number))
        assert all_equal(got, [np.full(1200, number)] * N)


def unread_messages(on: str) -> None:
    text = refused(on, lambda me, _: me.send(1, np.ones(2)) if me.device_id == 0 else None)
    assert "1 from device 0 to device 1; receive them, or do not send them" in text, text


BODIES = {
    body.__name__: body
    for body in (
        reductions,
        exchanges,
        byte_and_memory_orders,
        all_byte_and_memory_orders,
        averages,
        odd_arrays,
        large_arrays,
        groups,
        results_are_ones_own,
        messages,
        one_sided_puts,
        empty_puts,
        barriers_of_groups,
        numbers_answer_when_called,
        streams,
        endless_streams,
        loops_of_ones_own,
        only_the_last_device_writes,
        outputs_come_while_the_stream_goes_on,
        rows_of_unlike_loops,
        a_wait_in_a_stream_for_nobody,
        a_raise_in_a_stream,
        meters,
        slower_memories,
        mismatches,
        deadlocks,
        calls_of_another_thread,
        a_raise_ends_all,
        many_launches,
        unread_messages,
    )
}

if __name__ == "__main__":
    for _name in sys.argv[1:]:
        BODIES[_name]("mpi")
        print(f"passed {_name}\n", end="", flush=True)  # in one piece: four processes write

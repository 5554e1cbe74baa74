"""Streams of inputs and outputs: rows, pipelines, and how they end."""

from typing import Any

import numpy as np

from lib.engine import Reader, ShardedEngine, Writer, launch
from tests.oracles.collective_arrays import N

from .script import PATIENCE, Script, on_each, refusal_of


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


def a_stream_that_is_left(on: str) -> None:
    """It ends the run on all devices, and disturbs no later one."""
    with launch(Script, N, stage, on=on, metered=False) as run:
        outputs = run.inference_loop(np.full(5000, i) for i in range(1, 30))
        assert int(next(outputs)[0]) == 10**4 + 123
        assert "run is still open" in refusal_of(lambda run=run: run.forward(0))
    with launch(Script, N, stage, on=on, metered=False) as run:
        for y in run.inference_loop(np.full(5000, i) for i in range(1, 30)):
            if y[0] > 3 * 10**4:
                break
        del y
        assert "stream was left before" in refusal_of(lambda run=run: run.forward(0))
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
    assert "4, in inference_loop" in " ".join(getattr(caught, "__notes__", []))
    assert outputs == [i * 10**4 + 123 for i in range(1, len(outputs) + 1)]
    assert len(outputs) <= 3

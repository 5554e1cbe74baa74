"""A stream in process keeps a bounded number of inputs and outputs; a device that can never go on is a deadlock."""

from __future__ import annotations

from itertools import count, islice
from typing import Any

import numpy as np
import pytest

from lib import DeadlockError, RuleError
from lib.engine import ShardedEngine, devices, launch
from tests.support.collective_arrays import N
from tests.support.engine_bodies.streams import Assembly, ReadingAssembly
from tests.support.refusals import Refused


class Stuck(ShardedEngine):
    """The first device waits for a message that never comes, while the others could go on for ever."""

    def load_checkpoint(self, params: Any) -> None:
        """Nothing to load."""

    def forward(self, x: Any) -> Any:
        return x

    def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
        for x in input_stream:
            if self.device_id == 0:
                self.receive(1)
            else:
                self.go_on(x, output_stream)

    def go_on(self, x: Any, output_stream: Any) -> None:
        output_stream.write(x)


class OnlyReads(Stuck):
    def go_on(self, x: Any, output_stream: Any) -> None:
        """Drops the input."""


@pytest.mark.parametrize(
    ("cls", "words"),
    [
        (
            Stuck,
            "devices 1, 2 wait in the output stream, 1024 outputs before another device that has not written, line",
        ),
        (OnlyReads, "wait in the input stream, 1024 inputs before another device that reads it, line"),
    ],
)
def test_nobody_goes_on_for_ever_beside_a_device_that_waits(cls: type, words: str) -> None:
    taken = 0

    def endless() -> Any:
        nonlocal taken
        for taken in count():
            yield np.array(taken)

    with pytest.raises(DeadlockError) as why, launch(cls, 3) as run:
        list(run.inference_loop(endless()))
    assert "device 0 waits in" in str(why.value)
    assert words in str(why.value)
    assert taken < 1100


def test_whoever_is_ahead_goes_on_when_the_others_have_caught_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lib.engine.devices.MAX_UNTAKEN", 3)
    monkeypatch.setattr(devices, "MAX_UNREAD", 3)

    class Late(Stuck):
        def inference_loop(self, input_stream: Any, output_stream: Any) -> None:
            for i, x in enumerate(input_stream):
                if self.device_id == 1 and i % 2 == 0:
                    self.send(0, x)
                if self.device_id == 0 and i % 2 == 0:
                    self.receive(1)
                for _ in range(4):
                    output_stream.write(x)

    with launch(Late, 2) as run:
        rows = list(islice(run.inference_loop(np.array(i) for i in count()), 40))
    assert [[int(x) for x in row] for row in rows] == [[i // 4] * 2 for i in range(40)]


@pytest.mark.parametrize("cls", [Assembly, ReadingAssembly])
def test_outputs_come_while_the_stream_goes_on(cls: type) -> None:
    """The stream is read no faster than a full pipeline needs."""
    taken: list[int] = []
    pulled: list[int] = []

    def endless() -> Any:
        while True:
            assert len(pulled) <= len(taken) + N
            pulled.append(len(pulled))
            yield np.full(20, len(pulled))

    with launch(cls, N, metered=False) as run:
        for y in run.inference_loop(endless()):
            taken.append(int(y[0]))
            if len(taken) == 100:
                break
    assert taken == [i * 10**4 + 123 for i in range(1, 101)]


def test_on_processes_a_stream_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "MAX_ON_PROCESSES", 10)
    assert devices.every_input(iter(range(10))) == [*range(10)]
    with Refused("stream too long", most=10):
        devices.every_input(count())


def test_an_input_needs_an_item_for_each_device() -> None:
    words = "input 1 of the stream has 2 items for 3 devices; give a list with one per device, or one array for all"
    with pytest.raises(RuleError, match=words), launch(Stuck, 3) as run:
        list(run.inference_loop([[np.ones(1)] * 3, [np.ones(1)] * 2]))


def test_unread_messages_of_many_devices_are_summed_up() -> None:
    class Ring(Stuck):
        def forward(self, x: Any) -> None:
            self.send((self.device_id + 1) % 100, x)

    with Refused("never received", unread=[(i, (i + 1) % 100, 1) for i in range(100)]):  # noqa: SIM117
        with launch(Ring, 100) as run:
            run.forward(np.ones(1))

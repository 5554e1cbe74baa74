"""Devices as tasks that a browser suspends: the same results, figures and messages as with greenlets."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lib import DeadlockError, MismatchError
from lib.engine import ShardedEngine, launch
from puzzles.catalog.engine import ENGINE_PUZZLES
from tests.support.engine_trials import reference, score_class
from tests.support.suspending import with_suspended_tasks


def suspended(work: Callable[[], Any]) -> Any:
    """What a function returns, with devices as tasks that a browser suspends."""

    async def main() -> Any:
        return work()

    return with_suspended_tasks(main)


def both(work: Callable[[], Any]) -> Any:
    """The same, if it is the same with greenlets."""
    found = suspended(work)
    assert found == work()
    return found


class Stateless(ShardedEngine):
    """An engine without parameters."""

    def load_checkpoint(self, params: Any) -> None:
        pass

    def forward(self, x: Any) -> Any:
        raise NotImplementedError


class Ring(Stateless):
    """Every device adds up what all have, by passing numbers around a ring."""

    def forward(self, x: Any) -> Any:
        total = x.copy()
        for _ in range(int(self.num_devices) - 1):
            self.send((self.device_id + 1) % self.num_devices, x)
            x = self.receive((self.device_id - 1) % self.num_devices)
            total += x
        return total

    def inference_loop(self, inputs: Any, outputs: Any) -> None:
        for x in inputs:
            outputs.write(self.all_reduce(x))


def test_devices_wait_for_each_other_and_are_metered_alike() -> None:
    def work() -> Any:
        with launch(Ring, 4) as run:
            found = [int(one[0]) for one in run.forward([np.full(3, device) for device in range(4)])]
            return found, run.meters

    found, meters = both(work)
    assert found == [6] * 4
    assert [meter.messages for meter in meters] == [3] * 4


def test_a_stream_can_be_left() -> None:
    def work() -> Any:
        with launch(Ring, 2) as run:
            stream = run.inference_loop(np.full(1, i) for i in range(100))
            found = [int(row[0][0]) for row, _ in zip(stream, range(3))]
            stream.close()
            return found

    assert both(work) == [0, 2, 4]


class Waits(Stateless):
    ended = 0

    def forward(self, x: Any) -> Any:
        try:
            return self.receive((self.device_id + 1) % self.num_devices)
        finally:
            Waits.ended += 1


def test_a_deadlock_names_the_line_of_each_device_and_ends_them() -> None:
    before = Waits.ended
    said = both(lambda: message_of(DeadlockError, Waits))
    assert said.count("test_suspended.py") == 3
    assert Waits.ended == before + 6


class Differs(Stateless):
    def forward(self, x: Any) -> Any:
        return self.all_reduce(x) if self.device_id else self.all_gather(x)


def test_calls_that_differ_are_refused_alike() -> None:
    assert "all_gather" in both(lambda: message_of(MismatchError, Differs))


class Divides(Stateless):
    def forward(self, x: Any) -> Any:
        if self.device_id == 2:
            raise ZeroDivisionError("on purpose")
        self.barrier()


def test_an_error_of_one_device_ends_the_others() -> None:
    assert both(lambda: message_of(ZeroDivisionError, Divides)) == "on purpose"


def message_of(kind: type[Exception], cls: type) -> str:
    """What a run of a class on three devices refuses."""
    with pytest.raises(kind) as caught, launch(cls, 3) as run:
        run.forward(np.ones(2))
    return str(caught.value)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("slug", ENGINE_PUZZLES)
def test_references_have_the_same_score(slug: str) -> None:
    puzzle = ENGINE_PUZZLES[slug]
    assert both(lambda: score_class(puzzle, reference(slug))).stars >= 2

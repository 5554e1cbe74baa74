"""The test schedule `late_puts`: programs that wait for the barrier give the same result; others are caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.engine import launch
from tests.support.engine_bodies.script import Script
from tests.support.examples import examples
from tests.support.refusals import Refused

N = 4
DEVICES = st.integers(0, N - 1)
SCHEDULES = st.none() | st.sets(DEVICES)


def run_with(does: Any, late_puts: Any) -> tuple[list[Any], Any]:
    with launch(Script, N, does, late_puts=late_puts) as run:
        return run.forward(0), run.meters


def hands_around(me: Any, _: Any) -> Any:
    """Every device puts its number into a place of its own on the next one; no device waits for more than a sum."""
    buffer = me.symmetric(N)
    mine = np.array([me.device_id + 1.0], np.float32)
    me.send_async(mine, buffer[me.device_id :][:1], (me.device_id + 1) % N).wait()
    me.all_reduce(mine)
    before = buffer.copy()
    me.barrier()
    return {"before": before, "after": buffer}


def found(results: list[Any], when: str) -> list[float]:
    """The number of each device's left neighbour, or 0, that its buffer holds."""
    return [float(result[when][i - 1]) for i, result in enumerate(results)]


@pytest.mark.parametrize(
    ("late_puts", "before"),
    [
        (None, [0, 0, 0, 0]),
        ((), [4, 1, 2, 3]),
        ((2,), [4, 1, 2, 0]),
        ((0, 1, 2, 3), [0, 0, 0, 0]),
    ],
)
def test_a_late_put_lands_at_the_barrier_and_all_others_immediately(late_puts: Any, before: list[float]) -> None:
    results, _ = run_with(hands_around, late_puts)
    assert (found(results, "before"), found(results, "after")) == (before, [4, 1, 2, 3])
    assert run_with(hands_around, late_puts)[0][0]["before"].tolist() == results[0]["before"].tolist()


def test_the_meters_do_not_know_the_schedule() -> None:
    assert run_with(hands_around, (1,))[1] == run_with(hands_around, None)[1]


def test_a_put_can_land_before_its_target_has_returned_from_allocation() -> None:
    def at_once(me: Any, _: Any) -> Any:
        buffer = me.symmetric(N)
        for other in set(range(N)) - {int(me.device_id)}:
            me.send_async(np.ones(1, np.float32), buffer[me.device_id :][:1], other)
        me.barrier()
        return buffer

    results, _ = run_with(at_once, ())
    assert [result.tolist() for result in results] == [[float(i != j) for j in range(N)] for i in range(N)]


@examples(40)
@given(st.lists(st.tuples(DEVICES, DEVICES, st.integers(1, 9)), max_size=12), SCHEDULES)
def test_programs_that_wait_for_the_barrier_are_the_same_under_every_schedule(puts: Any, late: Any) -> None:
    """Any puts to distinct places, in rounds with a barrier between."""

    def rounds(me: Any, _: Any) -> Any:
        buffer = me.symmetric((len(puts) + 1, 2))
        seen = []
        for i, (source, target, number) in enumerate(puts):
            if source == me.device_id != target:
                me.send_async(np.full(2, number, np.float32), buffer[i], target)
            if i % 3 == 2:
                me.barrier()
                seen.append(buffer[: i + 1].copy())
        me.barrier()
        return [*seen, buffer]

    as_ever, under = run_with(rounds, None), run_with(rounds, late)
    assert under[1] == as_ever[1]
    for one, other in zip(as_ever[0], under[0]):
        assert all(map(np.array_equal, one, other))


@pytest.mark.parametrize("stranger", [4, -1])
def test_a_device_that_does_not_exist_is_refused(stranger: int) -> None:
    with Refused("no device for late_puts", device=stranger, size=N, last=N - 1):
        launch(Script, N, None, late_puts=(0, stranger))

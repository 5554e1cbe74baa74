"""Puzzles whose schedules without the idea, or with it, can be counted: all of them are played."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.judged import judged, missed


def _ways_to_cut(layers: int) -> Iterator[tuple[int, ...]]:
    """The sizes of consecutive buckets."""
    if not layers:
        yield ()
    for first in range(1, layers + 1):
        yield from ((first, *others) for others in _ways_to_cut(layers - first))


@pytest.mark.slow
def test_few_ways_to_cut_gradients_into_buckets_pass() -> None:
    goal = PUZZLES["ddp_overlap"].goal
    times = {sizes: judged(buckets(*sizes), goal).timesteps for sizes in _ways_to_cut(goal.size.layers)}
    below = [sizes for sizes, time in times.items() if goal.meets_time(time)]
    assert (len(times), len(below)) == (32, 12)
    assert times[2, 2, 2] == min(times.values()) == 14.5
    assert (1,) * 6 not in below


@pytest.mark.slow
def test_no_bucket_whose_halves_are_two_calls_passes() -> None:
    goal = PUZZLES["ddp_overlap"].goal
    every = [judged(buckets(*sizes, halves=True), goal) for sizes in _ways_to_cut(goal.size.layers)]
    assert min(report.timesteps for report in every) == 15 == goal.time_limit


@pytest.mark.slow
@pytest.mark.parametrize(("again", "fastest"), [("n", [18.05]), ("a", [])], ids=["for each backward", "in segments"])
def test_no_tensor_parallel_schedule_that_computes_inputs_again_passes(again: str, fastest: list[float]) -> None:
    goal = PUZZLES["sequence_parallel"].goal
    plans = ["n" + "".join(plan) for plan in product("k" + again, repeat=goal.size.layers - 1)]
    reports = [judged(inputs(plan), goal) for plan in plans]
    assert len(reports) == 128
    assert [plan for plan, report in zip(plans, reports) if not missed(report)] == []
    assert sorted(report.timesteps for report in reports if report.meets_memory)[:1] == fastest

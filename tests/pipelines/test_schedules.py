"""Schedules that cut, park and average reach the figures that an independent simulator of the rules has found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import (
    COSTS,
    Goal,
    Report,
    Setting,
    Size,
    referee,
)
from lib.pipelines import sequence_parallel, tensor_parallel
from solutions.checkpoint import checkpoint
from solutions.zero1 import zero1
from tests.support import finished
from tests.support.schedules import shards, tiers


def judged(schedule: Callable[..., Any], size: tuple[int, int, int], setting: Setting) -> Report:
    outcome = finished(schedule, *size, setting=setting)
    report = referee(outcome.trace, Goal("known", Size(*size), 10**6, 10**9, setting=setting))
    assert report.error is None
    return report


def costs(name: str, **more: Any) -> Setting:
    return Setting(COSTS[name], **more)


BLOCK = {"layer": "block"}
LOCAL = {"steps": 4, "task": "local"}

KNOWN = [
    ("zero1", zero1, (4, 4, 4), costs("classic"), 12.1, 2_097_152),
    ("checkpoint", checkpoint, (9, 1, 1), costs("long"), 26, 9_961_472),
    ("tensor_parallel", tensor_parallel, (4, 1, 4), costs("quarters", **BLOCK), 5.9, 1_179_648),
    ("tensor_parallel_record", shards.tensor_parallel_record, (4, 1, 4), costs("quarters", **BLOCK), 5.6, 1_048_576),
    ("tensor_parallel_long", shards.tensor_parallel_record, (8, 1, 4), costs("long_quarters", **BLOCK), 12, 9_437_184),
    ("sequence_parallel", sequence_parallel, (8, 1, 4), costs("long_quarters", **BLOCK), 13.05, 4_718_592),
    ("local_sgd", shards.local_sgd(4), (2, 4, 4), costs("slow", **LOCAL), 24, 1_572_864),
    ("local_sgd_twice", shards.local_sgd(2), (2, 4, 4), costs("slow", **LOCAL), 32, 1_572_864),
    ("ddp_four_steps", shards.data_parallel_steps, (2, 4, 4), costs("slow", steps=4), 51.5, 1_441_792),
    ("experts_in_turn", shards.experts_in_turn, (2, 8, 4), costs("experts", layer="experts"), 15.5, 1_835_008),
    ("expert_parallel", shards.expert_parallel, (2, 8, 4), costs("experts", layer="experts"), 10, 2_359_296),
    ("offload", tiers.offload(range(1, 6)), (8, 1, 1), costs("copies"), 19.5, 7_340_032),
    ("nothing_offloaded", tiers.offload(()), (8, 1, 1), costs("copies"), 19.5, 12_582_912),
    ("stream_inference", tiers.stream_inference, (8, 2, 1), costs("streams", task="infer"), 15, 786_432),
    ("stream_in_turn", tiers.stream_inference_in_turn, (8, 2, 1), costs("streams", task="infer"), 22, 524_288),
]


@pytest.mark.sampled(8)
@pytest.mark.parametrize(("name", "schedule", "size", "setting", "time", "memory"), KNOWN)
def test_a_schedule_reaches_its_known_figures(
    name: str, schedule: Any, size: tuple[int, int, int], setting: Setting, time: float, memory: int
) -> None:
    report = judged(schedule, size, setting)
    assert (report.timesteps, report.peak.memory, report.stars) == (time, memory, 3)
    assert not any(note.costs_a_star for note in report.notes)


def test_what_is_offloaded_is_on_the_host() -> None:
    report = judged(tiers.offload(range(1, 6)), (8, 1, 1), costs("copies"))
    assert report.peaks["host"].memory == 5 * COSTS["copies"].activation
    goal = Goal("x", Size(8, 1, 1), 20, 10**9, setting=costs("copies"), host=5_200_000)
    assert replace(report, goal=goal).status == "passed"
    assert replace(report, goal=replace(goal, host=5_100_000)).status == "over_target"


def test_without_overlap_the_same_weights_come_in_their_turn() -> None:
    """8 fetches of 1 step and 8 forwards of 2 steps, less the last forward: all on the clock."""
    alone = Setting(replace(COSTS["streams"], name="alone", overlap=False), task="infer")
    assert judged(tiers.stream_inference_in_turn, (8, 2, 1), alone).timesteps == 22

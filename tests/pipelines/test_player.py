"""Pipelines and other schedules reach the figures that an independent simulator of the rules has found."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from lib import COSTS, Goal, Model, Report, RuleError, Setting, Size, Trace, inflight, referee, run
from lib.pipelines import (
    breadth_first,
    ddp,
    fsdp_prefetch,
    interleaved,
    one_f_one_b,
    pipeline,
    recognize,
    seq1f1b,
    sequence_parallel,
    tensor_parallel,
    zb_h1,
    zb_h2,
    zb_v,
    zero2,
    zero3,
)
from lib.pipelines import zero1 as generated_zero1
from solutions.checkpoint import checkpoint
from solutions.zero1 import zero1
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules import shards, tiers

Schedule = Callable[[Model], Any]


SHARDED = Setting("gathers", mesh={"pp": 2, "dp": 2})


def judged(schedule: Schedule, size: tuple[int, int, int], setting: Setting) -> tuple[Trace, Report]:
    """A run, and its report by the rules of a puzzle, which finds it correct."""
    trace = finished(schedule, *size, setting=setting).trace
    report = referee(trace, Goal("known", Size(*size), 10**6, 10**9, setting=setting))
    assert report.error is None
    return trace, report


BLOCKS, LONG_BLOCKS = Setting("quarters", layer="block"), Setting("long_quarters", layer="block")
LOCAL = {"steps": 4, "task": "local"}

KNOWN = [
    ("one_f_one_b", pipeline(one_f_one_b), (4, 8, 4), Setting("stages"), 33, 1_441_792),
    ("zb_h1", pipeline(zb_h1), (4, 8, 4), Setting("parts"), 27, 1_466_368),
    ("zb_h2", pipeline(zb_h2), (4, 8, 4), Setting("parts"), 27, 1_884_160),
    ("zb_h2 for two steps", pipeline(zb_h2), (4, 8, 4), Setting("parts", steps=2), 51, 1_884_160),
    ("zb_h2 for three steps", pipeline(zb_h2), (4, 8, 4), Setting("parts", steps=3), 75, 1_884_160),
    ("interleaved", pipeline(interleaved), (8, 8, 4), Setting("stages"), 57, 3_145_728),
    ("zb_v", pipeline(zb_v), (8, 8, 4), Setting("parts"), 51, 2_768_896),
    ("breadth_first, sharded", pipeline(breadth_first, sharded=True), (4, 8, 4), SHARDED, 32, 5_144_576),
    ("ddp", ddp, (4, 4, 4), Setting(), 10.7, 3_145_728),
    ("ddp in buckets", ddp, (6, 4, 4), Setting("buckets"), 15.4, 6_029_312),
    ("generated zero1", generated_zero1, (4, 4, 4), Setting(), 12.1, 2_097_152),
    ("zero2", zero2, (4, 16, 4), Setting(), 39.7, 2_359_296),
    ("zero3", zero3, (6, 4, 4), Setting("overlap"), 22.5, 2_293_760),
    ("fsdp_prefetch", fsdp_prefetch, (6, 4, 4), Setting("overlap"), 15, 2_555_904),
    ("zero1", zero1, (4, 4, 4), Setting("classic"), 12.1, 2_097_152),
    ("checkpoint", checkpoint, (9, 1, 1), Setting("long"), 26, 9_961_472),
    ("tensor_parallel", tensor_parallel, (4, 1, 4), BLOCKS, 5.9, 1_179_648),
    ("tensor_parallel, record", shards.tensor_parallel_record, (4, 1, 4), BLOCKS, 5.6, 1_048_576),
    ("tensor_parallel, long", shards.tensor_parallel_record, (8, 1, 4), LONG_BLOCKS, 12, 9_437_184),
    ("sequence_parallel", sequence_parallel, (8, 1, 4), LONG_BLOCKS, 13.05, 4_718_592),
    ("local_sgd", shards.local_sgd(4), (2, 4, 4), Setting("slow", **LOCAL), 24, 1_572_864),
    ("local_sgd_twice", shards.local_sgd(2), (2, 4, 4), Setting("slow", **LOCAL), 32, 1_572_864),
    ("ddp_four_steps", shards.data_parallel_steps, (2, 4, 4), Setting("slow", steps=4), 51.5, 1_441_792),
    ("experts_in_turn", shards.experts_in_turn, (2, 8, 4), Setting("experts", layer="experts"), 15.5, 1_835_008),
    ("expert_parallel", shards.expert_parallel, (2, 8, 4), Setting("experts", layer="experts"), 10, 2_359_296),
    ("offload", tiers.offload(range(1, 6)), (8, 1, 1), Setting("copies"), 19.5, 7_340_032),
    ("nothing_offloaded", tiers.offload(()), (8, 1, 1), Setting("copies"), 19.5, 12_582_912),
    ("stream_inference", tiers.stream_inference, (8, 2, 1), Setting("streams", task="infer"), 15, 786_432),
    ("stream_in_turn", tiers.stream_inference_in_turn, (8, 2, 1), Setting("streams", task="infer"), 22, 524_288),
]


@pytest.mark.parametrize(("name", "schedule", "size", "setting", "time", "memory"), KNOWN)
def test_a_schedule_reaches_its_known_figures(
    name: str, schedule: Any, size: tuple[int, int, int], setting: Setting, time: float, memory: int
) -> None:
    _, report = judged(schedule, size, setting)
    assert (report.timesteps, report.peak.memory) == (time, memory)
    noted = [note.text for note in report.notes if note.costs_a_star]
    assert (report.stars, len(noted)) == ((2, 1) if name == "interleaved" else (3, 0))
    assert all("in a second step the peak would be" in text for text in noted)


def test_in_flight_counts_a_chunk_of_several_layers_once() -> None:
    from solutions.gpipe import gpipe as classic

    trace = run(classic, 8, 4, 4).trace
    assert inflight(trace) == (4.0,) * 4
    assert inflight(trace, 0.5, 9) == (2.0,) * 4


def test_the_span_of_an_empty_run_is_nothing() -> None:
    assert referee(Trace(Size(1, 1, 2), ((), ()))).span == 0


LAGGING = Setting("stages", steps=4, lag=1)
SEQUENCES = Setting("sequences", layer="attention", shares=8)


def figures(schedule: Schedule, size: tuple[int, int, int], setting: Setting) -> tuple[float, int, str]:
    """Time, memory and the name of a run that the referee finds correct."""
    trace, report = judged(schedule, size, setting)
    found = recognize(trace)
    assert found is not None
    return report.timesteps, report.peak.memory, found.text


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("p", "m"), [(4, 4), (4, 3), (3, 6), (2, 1)])
def test_without_flushes_a_pipeline_has_one_ramp_for_all_steps(p: int, m: int) -> None:
    """With a flush n (m + p - 1)(F + B), without it (m n + p - 1)(F + B); an older version of each weight is kept."""
    plain = figures(pipeline(one_f_one_b), (p, m, p), LAGGING)
    unflushed = figures(pipeline(one_f_one_b, flush=False), (p, m, p), LAGGING)
    assert (plain[0], unflushed[0]) == (3 * 4 * (m + p - 1), 3 * (4 * m + p - 1))
    assert unflushed[1] > plain[1]
    assert unflushed[2] == "2BW"
    assert plain[2] == ("1F1B" if m > 1 else "a pipeline without microbatches")


def test_an_order_that_needs_weights_before_they_exist_is_refused() -> None:
    error = run(pipeline(one_f_one_b, flush=False), 4, 2, 4, setting=LAGGING).error
    assert isinstance(error, RuleError)
    Refused("version not made", step=2, version=1, layer=0).require(error)


@pytest.mark.parametrize(
    ("shares", "time", "memory"), [(2, 124.8, 8_388_608), (4, 104.4, 8_126_464), (8, 85.5, 7_077_888)]
)
def test_shares_of_tokens_reach_the_figures_of_an_independent_simulator(shares: int, time: float, memory: int) -> None:
    assert figures(pipeline(seq1f1b, shares=shares), (4, 2, 4), SEQUENCES) == (time, memory, "Seq1F1B")


def test_shares_of_tokens_may_be_unequal_and_stages_deep() -> None:
    assert figures(pipeline(seq1f1b, shares=3), (8, 3, 4), SEQUENCES)[2] == "Seq1F1B"
    assert figures(pipeline(one_f_one_b), (4, 2, 4), SEQUENCES)[::2] == (144, "1F1B")


# === Schedules that park ===


def test_what_is_offloaded_is_on_the_host() -> None:
    _, report = judged(tiers.offload(range(1, 6)), (8, 1, 1), Setting("copies"))
    assert report.peaks["host"].memory == 5 * COSTS["copies"].activation
    goal = Goal("x", Size(8, 1, 1), 20, 10**9, setting=Setting("copies"), host=5_200_000)
    assert replace(report, goal=goal).status == "passed"
    assert replace(report, goal=replace(goal, host=5_100_000)).status == "over_target"


def test_without_overlap_the_same_weights_come_in_their_turn() -> None:
    """8 fetches of 1 step and 8 forwards of 2 steps, less the last forward: all on the clock."""
    alone = Setting(replace(COSTS["streams"], name="alone", overlap=False), task="infer")
    assert judged(tiers.stream_inference_in_turn, (8, 2, 1), alone)[1].timesteps == 22

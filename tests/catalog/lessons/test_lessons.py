"""A lesson that can be skipped is not taught: solutions without a puzzle's idea miss its targets, as tables say.

A skip that is an edit of the reference is a file in `tests/catalog/wrong`. Those in the tables are members of families:
one program with parameters (`grid(4, order=gpipe)`, `replicas("3")`), or the reference of another puzzle. As files, one
program would stand there some 300 times.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any

import pytest

from lib import Model, PuzzleError, referee, run
from lib.pipelines.orders import dualpipev, interleaved, one_f_one_b, v_half, zb_h1, zb_h2, zb_v
from puzzles.catalog.schedule import PUZZLES
from puzzles.teaching.writing import wrong_solutions
from tests.catalog.lessons.families.buckets import buckets
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.host_plans import host_plan
from tests.catalog.lessons.families.infer import infer
from tests.catalog.lessons.families.input_once import input_once
from tests.catalog.lessons.families.inputs import inputs
from tests.catalog.lessons.families.load_again import load_again
from tests.catalog.lessons.families.local import local
from tests.catalog.lessons.families.mixes import random_mix
from tests.catalog.lessons.families.outer_steps import outer_steps
from tests.catalog.lessons.families.passes import passes
from tests.catalog.lessons.families.replicas import replicas
from tests.catalog.lessons.judged import MODERN, judged, missed
from tests.catalog.lessons.tables.every import SKIPS
from tests.catalog.lessons.tables.unstopped import UNSTOPPED
from tests.support.schedules.splits import uneven
from tests.support.solved import reference_of

CASES = [pytest.param(slug, name, id=f"{slug}: {name}") for slug in SKIPS for name in SKIPS[slug]]


@pytest.mark.sampled(5)
@pytest.mark.parametrize(("slug", "name"), CASES)
def test_a_skip_misses_what_its_table_says(slug: str, name: str) -> None:
    schedule, expected = SKIPS[slug][name]
    report = judged(schedule, PUZZLES[slug].goal)
    assert missed(report) == expected
    assert report.stars == (2 if report.status == "passed" else 1)


@pytest.mark.parametrize("slug", [*UNSTOPPED])
def test_what_the_targets_allow_has_three_stars(slug: str) -> None:
    for schedule, expected in UNSTOPPED[slug].values():
        assert missed(judged(schedule, PUZZLES[slug].goal)) == expected, "a target stops it: move it to SKIPS"


def test_a_puzzle_with_skips_has_three() -> None:
    assert set(SKIPS) <= set(PUZZLES)
    assert [slug for slug, skips in SKIPS.items() if len(skips) + len(wrong_solutions(slug)) < 3] == []


# --- The families are no straw men: of each, the member that has a puzzle's idea passes it ---

TAUGHT: Mapping[str, Callable[[Model], Any]] = {
    "ddp": replicas("d"),
    "wsdp": replicas("3", reduce="all-reduce and cut"),
    "fsdp": replicas("3"),
    "pipeline": grid(4, together=4),
    "gpipe": grid(4),
    "zero1": replicas("1"),
    "zero2": replicas("2"),
    "checkpoint": inputs("aaakaakkk"),
    "offload": inputs("apppppkk"),
    "one_f_one_b": grid(4, order=one_f_one_b),
    "interleaved": grid(4, order=interleaved, chunks=2),
    "zb_h1": grid(4, order=zb_h1),
    "zb_h2": grid(4, order=zb_h2),
    "zb_v": grid(4, order=zb_v),
    "ddp_overlap": buckets(2, 2, 2),
    "fsdp_prefetch": replicas("3", prefetch=True),
    "stream_inference": infer("hhhhhhhh"),
    "tensor_parallel": grid(1, 4),
    "three_d": grid(2, 2, 2),
    "hybrid_shard": replicas("3", axis="shard"),
    "local_sgd": local(4),
    "fsdp_bound": passes(4),
    "axis_inside": grid(1, 4, 2),
    "tp_limit": grid(1, 2, 4),
    "uneven_stages": uneven((3, 3, 3, 1)),
    "v_half": grid(8, order=v_half),
    "two_ways": grid(4, order=dualpipev),
    "bucket_size": buckets(4, 4, 4, 4),
    "park_or_recompute": host_plan("papapkk"),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", [*TAUGHT])
def test_the_member_with_the_idea_meets_every_target(slug: str) -> None:
    report = judged(TAUGHT[slug], PUZZLES[slug].goal)
    assert missed(report) <= {"record"}
    assert report.status == "passed"


def test_a_schedule_that_loads_again_is_told_from_one_that_keeps_its_weights() -> None:
    goal = PUZZLES["zero1"].goal
    kept, again = judged(TAUGHT["zero1"], goal), judged(load_again(TAUGHT["zero1"]), goal)
    assert again.peak.memory < kept.peak.memory == kept.lasting_peak < again.lasting_peak


# --- Nobody who leaves a puzzle's idea out passes it by luck: random schedules without it miss a target ---

SLUGS = [
    slug
    for slug in MODERN
    if PUZZLES[slug].goal.size.ranks > 1
    and PUZZLES[slug].goal.setting.layer != "attention"  # mixes go forward and back
    and PUZZLES[slug].goal.setting.task != "outer"  # its random rounds are below
    and not PUZZLES[slug].goal.setting.frozen  # mixes train all layers
    and not PUZZLES[slug].goal.setting.whole  # and update shards
]
TRIES = 6
ROUNDS = 20


def _played(slug: str, seed: int) -> tuple[int, list[str]]:
    """How many mixes were correct, and those that passed with their figures."""
    goal, choice = PUZZLES[slug].goal, random.Random(f"{slug} {seed}")
    correct, passed = 0, []
    for _ in range(TRIES):
        mix = random_mix(goal, choice)
        outcome = run(mix.schedule, *goal.size, setting=goal.setting)
        if outcome.error is not None:
            assert isinstance(outcome.error, PuzzleError), mix.what
            continue
        report = referee(outcome.trace, goal)
        assert report.error is None, mix.what
        correct += 1
        if report.status == "passed":
            passed.append(f"{mix.what}: {report.timesteps:g} / {report.peak.memory:,} / {report.traffic:,}")
    return correct, passed


@pytest.mark.sampled(2)
@pytest.mark.parametrize("slug", SLUGS)
def test_random_schedules_without_the_idea_do_not_pass(slug: str) -> None:
    assert _played(slug, 0)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("slug", SLUGS)
def test_many_random_schedules_without_the_idea_do_not_pass(slug: str) -> None:
    found = [_played(slug, seed) for seed in range(1, ROUNDS)]
    assert [text for _, passed in found for text in passed] == []
    assert sum(correct for correct, _ in found) >= ROUNDS


@pytest.mark.sampled(2)
@pytest.mark.parametrize("seed", range(8))
def test_outer_steps_pass_only_where_layers_take_turns_and_ranks_compute_on(seed: int) -> None:
    choice = random.Random(seed)
    first = [choice.randrange(4) for _ in range(4)] if seed % 4 else choice.sample(range(4), 4)
    waits = choice.random() < 0.3
    schedule = outer_steps(lambda step: [at for at in range(4) if (step - 1 - first[at]) % 4 == 0], waits=waits)
    report = judged(schedule, PUZZLES["streaming_diloco"].goal)
    assert (report.status == "passed") == (len({*first}) == 4 and not waits), (first, waits, report)


# --- Where schedules without the idea, or with it, can be counted, all of them are played ---


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


# --- Loading weights again for each use solves no puzzle but the classics: the peak in steady state is read ---


@pytest.mark.sampled(6)
@pytest.mark.parametrize("slug", MODERN)
def test_a_reference_that_loads_again_does_not_pass(slug: str) -> None:
    report = judged(load_again(reference_of(slug)), PUZZLES[slug].goal)
    assert report.status == "over_target"
    assert missed(report) == {"steady"}


# --- No puzzle needs a hidden trick: its reference passes where each microbatch is taken from the model once ---

USES_TRICK = {
    *("checkpoint", "offload", "sequence_parallel", "fsdp_prefetch"),
    *("fsdp_bound", "axis_inside", "park_or_recompute", "weight_versions"),
}
"""Puzzles whose targets need the model's input to be taken again."""


@pytest.mark.sampled(4)
@pytest.mark.parametrize("slug", [*PUZZLES])
def test_the_reference_passes_if_the_input_is_taken_once(slug: str) -> None:
    assert judged(reference_of(slug), PUZZLES[slug].goal).status == "passed"
    once = judged(input_once(reference_of(slug)), PUZZLES[slug].goal)
    assert once.status == ("over_target" if slug in USES_TRICK else "passed")


@pytest.mark.parametrize("slug", sorted(USES_TRICK))
def test_a_statement_says_that_the_input_can_be_taken_again(slug: str) -> None:
    assert "`get_activation` returns it again at any time" in " ".join(PUZZLES[slug].statement.split())

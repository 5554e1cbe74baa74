"""A lesson that can be skipped is not taught: solutions without a puzzle's idea miss its targets, as tables say.

A skip that is an edit of the reference is a file in `tests/catalog/wrong`. Those in the tables are members of families:
one program with parameters (`grid(4, order=gpipe)`, `replicas("3")`), or the reference of another puzzle. As files, one
program would stand there some 300 times."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from math import sqrt
from typing import Any

import pytest

from lib import COSTS, Model, PuzzleError, Report, Setting, referee, run
from lib.ledger.named_costs import FLOPS, INFINIBAND
from lib.pipelines.orders import dualpipev, interleaved, one_f_one_b, v_half, zb_h1, zb_h2, zb_v
from puzzles.catalog.schedule import PUZZLES
from puzzles.teaching.writing import wrong_solutions
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.mixes import random_mix
from tests.catalog.lessons.families.one_rank import host_plan, infer, input_once, inputs, load_again
from tests.catalog.lessons.families.replicas import (
    buckets,
    local,
    outer_steps,
    passes,
    replicas,
)
from tests.catalog.lessons.tables import MICROSECONDS, MODERN, SKIPS, UNSTOPPED, judged, missed
from tests.screens.texts import approved
from tests.support.schedules.splits import uneven
from tests.support.solved import reference_of

# --- A lesson that can be skipped is not taught: solutions without a puzzle's idea miss its targets, as tables say ---
#
# A skip that is an edit of the reference is a file in `tests/catalog/wrong`. Those in the tables are members of
# families: one program with parameters (`grid(4, order=gpipe)`, `replicas("3")`), or the reference of another puzzle.
# As files, one program would stand there some 300 times.


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


# --- The chapter In microseconds: what its texts predict is measured, and the formula of `fsdp_bound` holds in a
# sweep ---


FIGURES = {
    "fsdp_bound": (9_498, 184_549_376, 161_480_704),
    "axis_inside": (2_612, 100_663_296, 192_937_984),
    "tp_limit": (1_598, 109_051_904, 109_051_904),
    "hierarchy": (3_688, 184_549_376, 125_829_120),
    "bucket_size": (2_488, 176_160_768, 29_360_128),
    "park_or_recompute": (21_534, 301_989_888, 0),
}

TIMES = {
    ("fsdp_bound", "no prefetching"): 15_105,
    ("fsdp_bound", "two microbatches in a pass"): 13_966,
    ("fsdp_bound", "full weights are kept, two in a pass"): 10_339,
    ("fsdp_bound", "zero1"): 11_585,
    ("axis_inside", "tensor across machines"): 8_383,
    ("axis_inside", "tensor over all"): 18_462,
    ("axis_inside", "fsdp inside, sums between"): 5_522,
    ("axis_inside", "fsdp over all"): 10_981,
    ("tp_limit", "groups of four"): 2_076,
    ("tp_limit", "one group of eight"): 3_672,
    ("tp_limit", "fsdp, four ranks computing"): 2_944,
    ("hierarchy", "one ring"): 7_700,
    ("hierarchy", "all-reduce inside, then between"): 6_708,
    ("hierarchy", "scatter between, all-reduce inside"): 6_376,
    ("hierarchy", "scatter and gather over all"): 7_704,
    ("bucket_size", "each layer"): 3_078,
    ("bucket_size", "pairs"): 2_596,
    ("bucket_size", "threes"): 2_545,
    ("bucket_size", "eights"): 2_722,
    ("bucket_size", "one bucket"): 3_309,
    ("park_or_recompute", "only parking"): 24_216,
    ("park_or_recompute", "only recomputing"): 25_534,
    ("park_or_recompute", "parks what is needed first"): 23_856,
}
"""By puzzle and skip, in microseconds."""


@cache
def measured(slug: str, name: str = "") -> Report:
    return judged(MICROSECONDS[slug][name][0] if name else reference_of(slug), PUZZLES[slug].goal)


@pytest.mark.parametrize("slug", FIGURES)
def test_a_reference_has_its_figures(slug: str) -> None:
    report = measured(slug)
    assert (report.timesteps, report.peak.memory, report.traffic) == FIGURES[slug]


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("slug", "name"), TIMES)
def test_another_way_takes_its_time(slug: str, name: str) -> None:
    assert measured(slug, name).timesteps == TIMES[slug, name]


def text(slug: str) -> str:
    puzzle = PUZZLES[slug]
    return " ".join(f"{puzzle.statement} {puzzle.answer} {puzzle.concept}".split())


def us(time: float) -> str:
    return f"{time:,.0f} us"


def asked(slug: str) -> str:
    return PUZZLES[slug].statement.strip().split("\n\n")[-1]


def test_a_puzzle_asks_for_a_prediction_exactly_if_it_has_the_answer() -> None:
    assert {slug for slug in PUZZLES if asked(slug).startswith("Predict first: ")} == set(FIGURES)
    assert {slug for slug, puzzle in PUZZLES.items() if puzzle.answer} == set(FIGURES)
    assert all(asked(slug).endswith("?") for slug in FIGURES)
    assert all(us(FIGURES[slug][0]) in PUZZLES[slug].answer.replace("\n", " ") for slug in FIGURES)


# --- fsdp_bound ---


def test_the_gather_and_the_forward_of_fsdp_bound_take_what_its_text_says() -> None:
    costs, words = COSTS["hopper_infiniband"], text("fsdp_bound")
    sent = costs.weight * 7 // 8
    assert f"sends {sent:,} elements, which takes {us(sent / INFINIBAND)}" in words
    assert f"+ 35 = {us(costs.transfer('allgather', 1, costs.weight // 8, range(8)) - 1)}" in words
    assert f"one microbatch takes {us(costs.duration('forward'))}" in words
    assert f"{us(4 * costs.duration('forward', 4) + 4 * costs.duration('backward', 4))} are computation" in words
    one = judged(replicas("3", prefetch=True), PUZZLES["fsdp_bound"].goal)
    assert f"a step takes {us(one.timesteps)}" in words


BOUND = Fraction(7, 8) * FLOPS / (2 * INFINIBAND)


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [1024, 2048, 4096])
def test_gathers_hide_from_as_many_tokens_on_as_the_formula_says_whatever_the_width(hidden: int) -> None:
    assert BOUND == 7_000
    assert f"= {int(BOUND):,} tokens" in text("fsdp_bound")

    def waits(tokens: int) -> float:
        costs = replace(COSTS["hopper_infiniband"], name="no hops", hidden=hidden, length=tokens, alpha={})
        report = referee(run(reference_of("fsdp_bound"), 6, 8, 8, setting=Setting(costs)).trace)
        alone = costs.transfer("allgather", 1, costs.weight // 8, range(8))
        computed = 6 * (costs.duration("forward") + costs.duration("backward"))
        return report.timesteps - computed - 2 * alone

    rounding = 12
    sweep = {tokens: waits(tokens) for tokens in range(4_000, 10_001, 500)}
    assert all((wait <= rounding) == (tokens >= BOUND) for tokens, wait in sweep.items()), sweep


# --- axis_inside, tp_limit, hierarchy ---


def test_only_the_place_of_tensor_parallelism_differs() -> None:
    inside, across = measured("axis_inside"), measured("axis_inside", "tensor across machines")
    words = text("axis_inside")
    assert inside.traffic == across.traffic
    assert f"{across.timesteps / inside.timesteps:.1f} times" in words
    assert f"{across.sent.between:,} of them go" in words
    assert f"{inside.sent.between:,} in the fast placement" in words
    together = judged(grid(1, 8, together=2), PUZZLES["axis_inside"].goal)
    assert f"each microbatch take {us(together.timesteps)}" in words


def test_larger_groups_take_longer_with_the_same_computation() -> None:
    goal, words = PUZZLES["tp_limit"].goal, text("tp_limit")
    four, eight = judged(grid(1, 4, 2, together=2), goal), judged(grid(1, 8, together=4), goal)
    half = goal.costs.duration("forward", 1, 1, 2), goal.costs.duration("backward", 1, 1, 2)
    assert f"4 x ({half[0]} + {half[1]}) = {us(4 * sum(half))}" in words
    assert f"of four take {us(four.timesteps)}, and one group" in words
    assert f"of eight takes {us(eight.timesteps)}" in words


def test_a_sum_in_two_levels_takes_what_its_text_says() -> None:
    costs, words = COSTS["hopper_machines"], text("hierarchy")
    inside, between = range(4), range(0, 16, 4)
    calls = [
        costs.transfer("scatterreduce", 1, costs.weight, inside),
        costs.transfer("allreduce", 1, costs.weight // 4, between),
        costs.transfer("allgather", 1, costs.weight // 4, inside),
    ]
    assert calls == [62, 282, 62]
    one_ring = costs.transfer("allreduce", 1, costs.weight, range(16))
    assert f"{us(one_ring)} against {us(sum(calls))}" in words
    report, flat = measured("hierarchy"), measured("hierarchy", "one ring")
    assert f"{us(report.timesteps)} in place of {us(flat.timesteps)}" in words
    assert report.traffic == flat.traffic == 5 * report.sent.between
    assert us(measured("hierarchy", "all-reduce inside, then between").timesteps) in PUZZLES["hierarchy"].hints[0]
    assert us(measured("hierarchy", "scatter between, all-reduce inside").timesteps) in words


# --- bucket_size ---


@pytest.mark.slow
def test_the_best_size_of_a_bucket_is_the_one_that_the_formula_says() -> None:
    goal, words = PUZZLES["bucket_size"].goal, text("bucket_size")
    costs = goal.costs
    hops, backward = 14 * 5, costs.duration("backward")
    assert f"{us(hops)} a call" in words
    assert f"one layer takes {us(backward)}" in words
    assert f"each layer takes {us(costs.transfer('allreduce', 1, costs.weight, range(8)))}" in words
    best = sqrt(16 * hops / backward)
    assert f"at k = {best:.1f}, the square root" in words
    assert f"root of {16 * hops:,} / {backward}" in words
    times = {
        size: judged(buckets(*[size] * (16 // size), *[16 % size] * (16 % size > 0)), goal).timesteps
        for size in range(1, 17)
    }
    assert min(times, key=lambda size: times[size]) == round(best) == 4
    assert all(f"{times[size]:,.0f}" in words for size in (1, 2, 3, 4, 8, 16))
    growing = judged(buckets(1, 2, 3, 3, 3, 4), goal)
    assert f"4 layers take {us(growing.timesteps)}" in words


# --- park_or_recompute ---


def best_plan(letters: str, hidden: int = 3072) -> tuple[float, str]:
    """The fastest plan of these letters that holds three activations besides weights and states, at a width."""
    goal = PUZZLES["park_or_recompute"].goal
    costs = replace(goal.costs, name="other", hidden=hidden)
    room = 3 * costs.activation + 16 * costs.weight

    def figures(plan: str) -> tuple[float, int]:
        report = referee(run(host_plan(plan), *goal.size, setting=Setting(costs)).trace)
        assert report.error is None
        return report.timesteps, report.lasting_peak

    plans = ("".join(plan) for plan in product(letters, repeat=7) if plan.count("k") <= 2)  # and the gradient
    return min((time, plan) for plan in plans for time, peak in [figures(plan)] if peak <= room)


def test_copies_and_recomputation_take_what_the_text_says() -> None:
    costs, words = COSTS["hopper_host"], text("park_or_recompute")
    copy, forward, backward = (
        costs.by_size("fetch", 1, costs.activation),
        costs.duration("forward"),
        costs.duration("backward"),
    )
    assert f"A copy takes {us(copy)}, a forward {us(forward)} and a backward {us(backward)}" in words
    assert copy / forward == pytest.approx(2.4, abs=0.05)
    assert copy - backward == 284
    assert copy - 2 * forward == 283
    kept = measured("park_or_recompute", "everything kept")
    assert f"a step takes {us(kept.timesteps)}" in words
    assert f"{us(measured('park_or_recompute').timesteps - kept.timesteps)} longer" in words
    waiting = measured("park_or_recompute").timesteps - kept.timesteps - 2 * forward
    assert f"The other {us(waiting)} are waiting, because" in words
    assert f"the host take {us(5 * copy)}, and all forwards {us(8 * forward)}" in words
    again = measured("park_or_recompute", "only recomputing").timesteps - kept.timesteps
    assert again == 9 * forward
    approved("microseconds", "copies and recomputation take what the text says", words, "within the memory it")
    (record,) = PUZZLES["park_or_recompute"].goal.records
    assert f"only, and takes {us(record.timesteps)}" in words


@pytest.mark.slow
def test_no_plan_of_one_kind_meets_the_time() -> None:
    """All plans that keep and park, and all that keep and compute again."""
    goal, words = PUZZLES["park_or_recompute"].goal, text("park_or_recompute")
    parking, recomputing = best_plan("kp"), best_plan("ka")
    assert (parking[1], recomputing[1]) == ("pppppkk", "aaakaak")
    assert not goal.meets_time(parking[0])
    assert not goal.meets_time(recomputing[0])
    assert f"Parking alone takes {us(parking[0])}" in words
    assert f"Recomputing alone takes {us(recomputing[0])}" in words


@pytest.mark.slow
def test_the_reference_is_the_fastest_of_all_plans() -> None:
    assert best_plan("kpa") == (measured("park_or_recompute").timesteps, "papapkk")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("hidden", "letters", "name"), [(4096, "kp", "parking"), (2048, "ka", "recomputing")])
def test_the_width_decides_which_of_the_two_is_nearly_enough(hidden: int, letters: str, name: str) -> None:
    words, (alone, _) = text("park_or_recompute"), best_plan(letters, hidden)
    mixed = {4096: "papapkk", 2048: "aapakak"}[hidden]
    costs = replace(COSTS["hopper_host"], name="other", hidden=hidden)
    report = referee(run(host_plan(mixed), 8, 1, 1, setting=Setting(costs)).trace)
    assert f"{name} alone takes {us(alone)} and a mixture takes {us(report.timesteps)}" in words
    assert report.timesteps < alone < 1.1 * report.timesteps


def test_a_pass_that_keeps_its_weights_gathers_each_once() -> None:
    kept, again = judged(passes(1, keep=True), PUZZLES["fsdp_bound"].goal), measured("fsdp_bound")
    assert sum(row.number for row in kept.traffic_by_call if row.operation == "allgather") == 4
    assert sum(row.number for row in again.traffic_by_call if row.operation == "allgather") == 7

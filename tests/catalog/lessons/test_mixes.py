"""Nobody who leaves a puzzle's idea out passes it by luck: random schedules without it miss a target."""

from __future__ import annotations

import random

import pytest

from lib import PuzzleError, referee, run
from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.families.mixes import random_mix
from tests.catalog.lessons.families.outer_steps import outer_steps
from tests.catalog.lessons.judged import MODERN, judged

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

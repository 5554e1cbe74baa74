"""The first mistakes in core puzzles, and what a learner reads: what to type, or what the run shows.

A row is altered from the reference. Advice on a missed target comes from the trace: no "delete" where everything is
still needed, no gaps where nobody waits.
"""

from __future__ import annotations

import asyncio

import pytest

from puzzles.catalog.path import CORE
from puzzles.notebook.local_run import judge_here
from puzzles.tracks import track_of
from tests.support.mistakes import Mistake, altered

from .frontier import FRONTIER
from .pipelines import PIPELINES
from .sharing import SHARING
from .splitting import OVERLAP, SPLITTING
from .tensors import CLASSES, LAYOUTS, PLANS

FIRST = [*SHARING, *PIPELINES, *OVERLAP, *SPLITTING, *CLASSES, *LAYOUTS, *PLANS, *FRONTIER]


def read_by_the_learner(mistake: Mistake) -> str:
    """The message, and the advice on a target that is missed."""
    puzzle = track_of(mistake.slug).puzzle(mistake.slug)
    verdict = asyncio.run(judge_here(puzzle, altered(mistake.slug, mistake.changes), 10))
    assert verdict.status in ("failed", "over_target"), "this is no mistake"
    return f"{verdict.message} {verdict.advice}"


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # an overflow is one of the mistakes
@pytest.mark.sampled(6)
@pytest.mark.parametrize("mistake", FIRST, ids=str)
def test_a_first_mistake_is_answered_with_what_to_do(mistake: Mistake) -> None:
    said = read_by_the_learner(mistake)
    assert [part for part in mistake.says if part not in said] == [], said


@pytest.mark.parametrize("slug", [*CORE, "host_update", "two_ways"])
def test_every_core_puzzle_has_five_first_mistakes(slug: str) -> None:
    assert len([mistake for mistake in FIRST if mistake.slug == slug]) >= 5

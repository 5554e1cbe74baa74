"""An all-reduce costs what a reduce-scatter and an all-gather cost: nobody is paid for the worse collective."""

from __future__ import annotations

from functools import partial

import pytest

from lib.game.costs import CLASSIC
from puzzles.catalog.schedule import PUZZLES
from tests.catalog.lessons.judged import MODERN

COLLECTIVES = ("allreduce", "allgather", "scatterreduce")
FIXED = {"sequence_parallel": "0.3 steps for an all-reduce, and 0.15 for each half, at any size"}
"""Puzzles whose prices do not go by size."""

PRICED = [
    slug
    for slug in MODERN
    if PUZZLES[slug].goal.costs != CLASSIC
    and PUZZLES[slug].goal.size.ranks > 1
    and all(map(PUZZLES[slug].goal.costs.priced, COLLECTIVES))
]


@pytest.mark.parametrize("slug", PRICED)
def test_an_all_reduce_takes_as_long_as_its_halves(slug: str) -> None:
    costs = PUZZLES[slug].goal.costs
    for ranks in range(2, 17):
        for elements in (costs.weight, costs.activation, 3 * costs.activation):
            transfer = partial(costs.transfer, items=1, ranks=range(ranks))
            whole = transfer("allreduce", elements=elements)
            halves = transfer("scatterreduce", elements=elements) + transfer("allgather", elements=elements // ranks)
            assert abs(whole - halves) <= 1, (ranks, elements)  # each is rounded up to ticks


def test_fixed_prices_are_named() -> None:
    assert {slug for slug in PRICED if PUZZLES[slug].goal.costs.by_value} == set(FIXED)

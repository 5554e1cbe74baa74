"""Published figures of schedules, of which runs of the product reproduce each one exactly."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

import pytest

from tests.support.truth import CLAIMS, REPLICAS, TABLE_1, states_held
from tests.support.truth_runs import Claim

ALL = [(f"{chapter}: {claim.what}", claim) for chapter, claims in CLAIMS.items() for claim in claims]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(("claim", "sizes"), [pytest.param(c, s, id=f"{n} {s}") for n, c in ALL for s in c.quick])
def test_a_run_has_the_published_figure(claim: Claim, sizes: tuple[Any, ...]) -> None:
    assert claim.ours(*sizes) == claim.published(*sizes)


@pytest.mark.slow
@pytest.mark.parametrize("claim", [pytest.param(claim, id=name) for name, claim in ALL])
def test_runs_of_all_sizes_have_the_published_figure(claim: Claim) -> None:
    for sizes in claim.sets:
        assert claim.ours(*sizes) == claim.published(*sizes), sizes


def printed(value: Fraction, cell: str) -> set[str]:
    """A value with as many decimals as a printed cell: rounded half up, and cut off."""
    places = Decimal(1).scaleb(-len(cell.partition(".")[2]))
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return {str(exact.quantize(places, rounding)) for rounding in (ROUND_HALF_UP, ROUND_DOWN)}


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param(k, marks=[] if k == 3 else pytest.mark.slow) for k in range(6)])
def test_model_states_are_the_cells_of_zero_table_1(place: int) -> None:
    for parameters, rows in TABLE_1.items():
        for zero, cell in enumerate(rows[place], 1):
            gigabytes = states_held(zero, REPLICAS[place]) * parameters / 10**9
            assert cell in printed(gigabytes, cell), (parameters, zero)

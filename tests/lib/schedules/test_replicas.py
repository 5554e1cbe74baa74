"""Replicas that share states, gradients or weights along dp, with stages along pp and cut blocks along tp."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest

from lib import Setting, referee, run
from lib.game.named_costs import COSTS
from tests.support.schedules.replicas import Plan, trained

OVERLAP = replace(COSTS["overlap"], lanes="group")

PLANS = [
    Plan(0), Plan(0, late=True), Plan(1), Plan(1, late=True), Plan(2), Plan(2, interleaved=True), Plan(3),
    Plan(3, held=True), Plan(3, interleaved=True), Plan(2, lazy=True), Plan(3, lazy=True),
]  # fmt: skip


@pytest.mark.sampled(10)
@pytest.mark.parametrize("axes", [{}, {"pp": 2}, {"tp": 2}, {"pp": 2, "tp": 2}])
@pytest.mark.parametrize("plan", PLANS)
def test_replicas_with_any_axes_train_by_the_rules(plan: Plan, axes: dict[str, int]) -> None:
    setting = Setting(
        OVERLAP if plan.lazy else COSTS["classic"],
        mesh={"dp": 3, **axes},
        layer="block" if "tp" in axes else "dense",
    )
    ranks = 3 * axes.get("pp", 1) * axes.get("tp", 1)
    outcome = run(trained(plan), 2, 6, ranks, setting=setting)
    assert outcome.error is None
    report = referee(outcome.trace)
    assert report.error is None
    assert report.copies == pytest.approx((1 if plan.zero == 3 else 3,) * 2)


@pytest.mark.parametrize(("zero", "volume"), [(0, 2), (1, 2), (3, 3)])
def test_sharing_weights_sends_half_as_much_again(zero: int, volume: int) -> None:
    """2 (n - 1)/n of the weights, and with ZeRO 3, which gathers them twice, 3 (n - 1)/n (Rajbhandari et al. 2020,
    section 7)."""
    layers, n = 3, 4
    report = referee(run(trained(Plan(zero)), layers, n, n, setting=Setting(mesh={"dp": n})).trace)
    assert report.traffic == volume * layers * COSTS["classic"].weight * Fraction(n - 1, n)

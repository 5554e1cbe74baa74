"""BalanceLoss in exact numbers: losses of alpha, of alpha N and below alpha; its gradient against differences."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from puzzles.catalog.engine import ENGINE_PUZZLES
from puzzles.catalog.engine.models import softmax
from puzzles.content.engine.experts import trials
from solutions.engine.balance_loss import BalanceLoss
from tests.support.engine_trials import perform

N = 4


def loss_of(p: list[list[Fraction]], alpha: Fraction = Fraction(1)) -> Fraction:
    """alpha N sum f P in exact numbers, for the tokens' probabilities."""
    tokens, experts = len(p), len(p[0])
    f = [Fraction(sum(row.index(max(row)) == i for row in p), tokens) for i in range(experts)]
    mean = [sum((row[i] for row in p), Fraction(0)) / tokens for i in range(experts)]
    return alpha * experts * sum((a * b for a, b in zip(f, mean)), Fraction(0))


ROWS = st.lists(st.integers(1, 9), min_size=4, max_size=4, unique=True)


@given(st.lists(ROWS, min_size=1, max_size=5))
def test_uniform_choices_give_exactly_alpha(weights: list[list[int]]) -> None:
    """Every row, rotated so that each expert is the likeliest once."""
    turned = [row[i:] + row[:i] for row in weights for i in range(4)]
    assert loss_of([[Fraction(w, sum(row)) for w in row] for row in turned]) == 1


def test_collapse_gives_alpha_n() -> None:
    assert loss_of([[Fraction(0), Fraction(1), Fraction(0), Fraction(0)]] * 5, Fraction(1, 100)) == Fraction(4, 100)


@pytest.mark.parametrize(
    ("make", "loss"), [(trials.balanced_routing, trials.ALPHA), (trials.collapsed_routing, trials.ALPHA * N)]
)
def test_the_reference_gives_alpha_and_alpha_n(make: Any, loss: float) -> None:
    results = perform(make(), BalanceLoss).results[0]
    assert [float(result[0]) for result in results] == pytest.approx([loss] * N, rel=1e-6)


def test_alpha_is_not_the_minimum() -> None:
    """The catalog's example: three tokens prefer the first of two experts by a hair, one the second for certain."""
    hair = Fraction(1, 1000)
    half = Fraction(1, 2)
    assert loss_of([[half + hair, half - hair]] * 3 + [[Fraction(0), Fraction(1)]]) < 1
    f, mean = (Fraction(3, 4), Fraction(1, 4)), (Fraction(3, 8), Fraction(5, 8))
    assert 2 * sum(a * b for a, b in zip(f, mean)) == Fraction(7, 8)
    assert "7/8 alpha" in ENGINE_PUZZLES["BalanceLoss"].concept


def test_the_average_of_local_losses_is_another_number() -> None:
    logits = trials.balance_loss(trials.some_logits(70, [8] * N)).calls[0].arguments
    whole, _ = trials.balance_loss_and_gradients(logits, 1.0)
    assert abs(np.mean([trials.balance_loss_and_gradients([z], 1.0)[0][0] for z in logits]) - whole[0]) > 0.01


def test_the_gradient_is_that_of_the_whole_loss() -> None:
    """Against differences of the loss itself, with the choices held."""
    logits = [z.astype(np.float64) for z in trials.some_logits(80, (3, 1, 2, 2))]
    _, grads = trials.balance_loss_and_gradients(logits, 0.5)
    f = np.bincount(np.concatenate(logits).argmax(axis=1), minlength=N) / 8

    def loss() -> float:
        return float(0.5 * N * (f * np.concatenate([softmax(z) for z in logits]).mean(axis=0)).sum())

    for z, grad in zip(logits, grads):
        for place in np.ndindex(z.shape):
            before = z[place]
            z[place] = before + 1e-5
            up = loss()
            z[place] = before - 1e-5
            slope = (up - loss()) / 2e-5
            z[place] = before
            assert slope == pytest.approx(grad[place], abs=1e-8)

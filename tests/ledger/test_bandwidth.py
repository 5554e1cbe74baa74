"""The peak bandwidth of a run: by hand, and against a sum over every window."""

from __future__ import annotations

import random
from fractions import Fraction
from typing import Any

import pytest

from lib import Model, Report, referee
from lib.ledger.traffic import Span, most_in_window
from tests.support import finished
from tests.support.refusals import Refused


def within(spans: list[Span], begin: Fraction, window: Fraction) -> Fraction:
    """What is sent in one window, span by span."""
    end, total = begin + window, Fraction()
    for start, stop, elements in spans:
        if start == stop:
            total += elements * (begin <= start <= end)
        else:
            total += Fraction(elements, stop - start) * max(Fraction(), min(end, stop) - max(begin, start))
    return total


@pytest.mark.sampled(15)
@pytest.mark.parametrize("seed", range(40))
def test_no_window_has_more(seed: int) -> None:
    drawn = random.Random(seed)
    starts = [drawn.randrange(12) for _ in range(drawn.randrange(1, 7))]
    spans = [(start, start + drawn.randrange(5), drawn.randrange(10)) for start in starts]
    window = Fraction(drawn.randrange(1, 12), drawn.choice((1, 2)))
    every = [within(spans, Fraction(begin, 4), window) for begin in range(-60, 80)]
    assert most_in_window(spans, window) == max(every)


def test_calls_at_once_add_up_and_calls_apart_do_not() -> None:
    assert most_in_window([(0, 4, 8), (2, 4, 6)], Fraction(2)) == 4 + 6
    assert most_in_window([(0, 4, 8), (6, 10, 8)], Fraction(4)) == 8
    assert most_in_window([(3, 3, 5), (3, 3, 1), (9, 9, 2)], Fraction(1, 2)) == 6
    assert most_in_window([], Fraction(1)) == 0


async def two_sums(model: Model) -> None:
    weights = [model.load_weights(layer) for layer in (0, 1)]
    inp = model.get_activation([model.rank])
    out = model.forward(0, inp, weights[0][0])
    grad = model.loss(model.forward(1, out, weights[1][0]))
    grad_1, grad = model.backward(1, out, grad, weights[1][0])
    grad_0, _ = model.backward(0, inp, grad, weights[0][0])
    for layer, one in ((1, grad_1), (0, grad_0)):
        weight, _ = model.update(layer, await model.allreduce(one, layer), *weights[layer])
        model.set_final_weight(layer, weight)


def report() -> Report:
    outcome = finished(two_sums, 2, 2, 2)
    return referee(outcome.trace)


def test_a_call_is_spread_evenly_over_its_time() -> None:
    """An all-reduce takes 0.3 steps and an update 0.5. Each rank sends 262,144 elements in an all-reduce."""
    found = report()
    assert found.traffic == 2 * 262_144
    assert found.wire(0.3) == 262_144
    assert found.wire(0.1) == pytest.approx(262_144 / 3)
    assert found.wire(0.6) == 262_144
    assert found.wire(Fraction(7, 8)) == pytest.approx(262_144 * (1 + 0.075 / 0.3))
    assert found.wire(1000) == found.traffic


@pytest.mark.parametrize("window", [0, -1, float("inf"), float("nan"), "1", None, True])
def test_a_window_is_a_time(window: Any) -> None:
    with Refused("no window"):
        report().wire(window)

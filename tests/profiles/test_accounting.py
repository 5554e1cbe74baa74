"""Where the time of a step went, on two ranks and times that are written down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lib.profiles.reading import Span
from lib.profiles.studying import accounted

LENGTH = 30.0
"""Rank 0 computes from 0 to 10 and sends its result; rank 1 computes from 4 to 9 and, with that result, until the end
of the step."""


def step(start: float) -> Any:
    """A step in which rank 1 starts its second slot at `start`."""
    times = [[(0.0, 10.0)], [(4.0, 9.0), (start, LENGTH)]]
    spans = tuple(tuple(Span((), a, a, b, b - a) for a, b in row) for row in times)
    return SimpleNamespace(order=SimpleNamespace(arrivals=[[[]], [[], [((0, 0), None)]]]), spans=spans, length=LENGTH)


@pytest.mark.parametrize(
    ("start", "waiting", "message"),
    [(14.0, 1.0, 4.0), (10.0, 1.0, 0.0), (9.5, 0.5, 0.0)],
    ids=["a message travels", "it starts at once", "clocks differ by a little"],
)
def test_a_rank_waits_until_its_input_is_made_and_then_for_the_message(
    start: float, waiting: float, message: float
) -> None:
    found = accounted(step(start))
    _, one = found.ranks
    assert (one.waiting, one.message, one.host) == (waiting, message, 4.0), "the host was late before the first slot"
    assert found.waited_for == {0: waiting}
    assert found.message == message


def test_shares_add_up_to_the_ranks_times_the_step() -> None:
    found = accounted(step(14.0))
    for one in found.ranks:
        assert one.computing + one.warm_up + one.waiting + one.message + one.host + one.cool_down == LENGTH
    assert found.ranks[0].cool_down == 20.0
    assert found.computing == (10 + 21) / 2
    assert found.bubble == 1 - 15.5 / LENGTH
    assert found.of_ideal == LENGTH / 15.5 - 1

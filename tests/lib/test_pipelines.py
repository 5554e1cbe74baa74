"""Published formulas: pipelines of any size take the time, and hold what is in flight, that the papers state."""

from __future__ import annotations

from types import MappingProxyType

import pytest

from lib import COSTS, Costs, Goal, Report, Setting, Size, Trace, inflight, referee, run
from lib.schedules import gpipe, one_f_one_b, pipeline, zb_h1, zb_h2
from lib.schedules.player import Order


def costs_of(f: int, i: int, w: int) -> Costs:
    """F, I and W (times of a forward, of the input half and of the weight half of backward), all else for nothing."""
    ticks = {"forward": f, "backward": i + w, "backward_input": i, "backward_weight": w}
    free = dict.fromkeys(("loss", "update", "pass_to", "receive"), 0)
    return Costs("formula", ticks=MappingProxyType({**ticks, **free}), unit=1, gradient=1)


def trained(order: Order, p: int, m: int, costs: Costs, steps: int = 1) -> tuple[Trace, Report]:
    """The run and the report of a pipeline of p layers on p ranks."""
    size, setting = Size(p, m, p), Setting(costs, steps=steps)
    outcome = run(pipeline(order), *size, setting=setting)
    assert outcome.error is None
    report = referee(outcome.trace, Goal("formula", size, 10**6, 10**9, setting=setting))
    assert report.error is None
    return outcome.trace, report


RANKS = [2, 3, 4, pytest.param(6, marks=pytest.mark.slow)]
TIMES = [(1, 1, 1), (2, 1, 1), (3, 2, 3), *(pytest.param(t, marks=pytest.mark.slow) for t in ((2, 3, 2), (3, 2, 2)))]


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("times", TIMES)
def test_whole_backwards_take_the_time_of_gpipe(p: int, times: tuple[int, int, int]) -> None:
    """(m + p - 1)(F + B), of which 1F1B holds min(p - r, m) microbatches on rank r (Narayanan et al. 2019, 3.2)."""
    f, b = times[0], times[1] + times[2]
    for m in (1, p - 1, p, 2 * p + 1):
        for order in (gpipe, one_f_one_b):
            trace, report = trained(order, p, m, costs_of(*times))
            assert report.makespan == (m + p - 1) * (f + b)
        assert inflight(trace) == tuple(min(p - r, m) for r in range(p))


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("times", TIMES)
def test_halves_leave_the_bubbles_of_zero_bubble(p: int, times: tuple[int, int, int]) -> None:
    """Idle time of the longest span, and memory by rank, of ZB-H1 and ZB-H2 (Qi et al. 2024, sections 2 and 2.3)."""
    f, i, w = times
    for m in (2 * p, 2 * p + 3):
        trace, report = trained(zb_h1, p, m, costs_of(*times))
        assert f + i >= w
        assert report.span - m * (f + i + w) == (p - 1) * (f + i - w)
        assert inflight(trace, 1, 0.25) == tuple(p - r + r / 4 for r in range(p))
        if f + i < 2 * w:
            continue
        trace, report = trained(zb_h2, p, m, costs_of(*times))
        assert report.span - m * (f + i + w) == (p - 1) * (f + i - 2 * w)
        assert inflight(trace, 1, 0.25) == tuple(2 * (p - r) - 1 + r / 2 for r in range(p))


FIGURES = [
    ("one_f_one_b", one_f_one_b, "stages", 1, 33, 1_441_792),
    ("zb_h1", zb_h1, "parts", 1, 27, 1_466_368),
    ("zb_h2", zb_h2, "parts", 1, 27, 1_884_160),
    ("zb_h2 for two steps", zb_h2, "parts", 2, 51, 1_884_160),
    ("zb_h2 for three steps", zb_h2, "parts", 3, 75, 1_884_160),
]


@pytest.mark.parametrize(("name", "order", "costs", "steps", "time", "memory"), FIGURES)
def test_pipelines_of_four_ranks_reach_known_figures(
    name: str, order: Order, costs: str, steps: int, time: float, memory: int
) -> None:
    _, report = trained(order, 4, 8, COSTS[costs], steps)
    assert (report.timesteps, report.makespan, report.peak.memory) == (time, time, memory)
    assert report.stars == 3
    assert not any(note.costs_a_star for note in report.notes)


def test_in_flight_counts_a_chunk_of_several_layers_once() -> None:
    from solutions.gpipe import gpipe as classic

    trace = run(classic, 8, 4, 4).trace
    assert inflight(trace) == (4.0,) * 4
    assert inflight(trace, 0.5, 9) == (2.0,) * 4


def test_the_span_of_an_empty_run_is_nothing() -> None:
    assert referee(Trace(Size(1, 1, 2), ((), ()))).span == 0

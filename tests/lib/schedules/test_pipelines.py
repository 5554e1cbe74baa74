"""Pipelines reach the figures that an independent simulator of the rules has found."""

from __future__ import annotations

import pytest

from lib import COSTS, Costs, Goal, Report, Setting, Size, Trace, inflight, referee, run
from lib.schedules import breadth_first, interleaved, one_f_one_b, pipeline, zb_h1, zb_h2, zb_v
from lib.schedules.player import Order


def trained(order: Order, p: int, m: int, costs: Costs, steps: int = 1) -> tuple[Trace, Report]:
    """The run and the report of a pipeline of p layers on p ranks."""
    size, setting = Size(p, m, p), Setting(costs, steps=steps)
    outcome = run(pipeline(order), *size, setting=setting)
    assert outcome.error is None
    report = referee(outcome.trace, Goal("formula", size, 10**6, 10**9, setting=setting))
    assert report.error is None
    return outcome.trace, report


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


CHUNKED = [
    (interleaved, (8, 8, 4), Setting("stages"), {}, 57, 3_145_728),
    (zb_v, (8, 8, 4), Setting("parts"), {}, 51, 2_768_896),
    (breadth_first, (4, 8, 4), Setting("gathers", mesh={"pp": 2, "dp": 2}), {"sharded": True}, 32, 5_144_576),
]


@pytest.mark.parametrize(("order", "size", "setting", "more", "time", "memory"), CHUNKED)
def test_pipelines_of_several_stages_on_a_rank_reach_known_figures(
    order: Order, size: tuple[int, int, int], setting: Setting, more: dict[str, bool], time: float, memory: int
) -> None:
    outcome = run(pipeline(order, **more), *size, setting=setting)
    report = referee(outcome.trace)
    assert (outcome.error, report.error) == (None, None)
    assert (report.timesteps, report.peak.memory) == (time, memory)


def test_in_flight_counts_a_chunk_of_several_layers_once() -> None:
    from solutions.gpipe import gpipe as classic

    trace = run(classic, 8, 4, 4).trace
    assert inflight(trace) == (4.0,) * 4
    assert inflight(trace, 0.5, 9) == (2.0,) * 4


def test_the_span_of_an_empty_run_is_nothing() -> None:
    assert referee(Trace(Size(1, 1, 2), ((), ()))).span == 0

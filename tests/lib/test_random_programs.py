"""Random legal programs run alike in every order of starting and waking the ranks, and as a second simulator says."""

from __future__ import annotations

from random import Random

import pytest

from lib import Report, Trace, referee, run
from tests.support.programs import random_program
from tests.support.programs.prices import EVENTS
from tests.support.programs.simulation import Simulation
from tests.support.programs.writer import Program
from tests.support.schedules.random_program import playing, setting_of


def played(program: Program, seed: int = 0) -> Trace:
    """A run, which must come to its end. With a seed the ranks start in another order, and with an odd one they nap."""
    choice, ranks = Random(seed), program.size[2]
    order = choice.sample(range(ranks), ranks) if seed else range(ranks)
    naps = choice if seed % 2 else None
    outcome = run(playing(program, naps), *program.size, order, setting=setting_of(program))
    if outcome.error is not None:
        raise outcome.error
    return outcome.trace


def assert_as_simulated(program: Program, trace: Trace, report: Report) -> None:
    told = Simulation(program.size[2], program.prices, program.acts)
    assert not told.stuck
    for rank, (acts, ops, mine) in enumerate(zip(program.acts, trace.ranks, report.ranks, strict=True)):
        assert [op[:3] for op in ops] == [(act.name, *told.times[rank, at]) for at, act in enumerate(acts)]
        assert mine.memory == tuple(told.memory(rank))
        assert (mine.bytes_sent, mine.messages) == (4 * told.sent[rank], told.messages[rank])
    steps = trace.costs.steps
    events = [told.times[rank, i] for rank, acts in enumerate(program.acts) for i, act in enumerate(acts) if act.name in EVENTS]
    assert report.timesteps == steps(max(start for start, _ in events))
    assert report.makespan == steps(max(end for _, end in events))
    ranks = range(program.size[2])
    assert report.peak.memory == max(max(told.memory(rank)) for rank in ranks)
    assert report.peaks["host"].memory == max(max(told.memory(rank, "host")) for rank in ranks)


@pytest.mark.sampled(60)
@pytest.mark.parametrize("seed", range(2000))
def test_a_random_program_runs_as_simulated_in_any_order(seed: int) -> None:
    program = random_program(seed)
    trace = played(program)
    report = referee(trace)
    assert report.error is None, report.error
    assert_as_simulated(program, trace, report)
    for variation in (1, 2):
        again = played(program, variation)
        assert again == trace
    assert referee(again) == report

"""Random legal programs run alike in every order of starting and waking the ranks, and as a second simulator says."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random

import pytest

from lib import Report, Size, Trace, referee, run
from lib.pipelines.bounds import memory_bound, time_bound
from tests.support import programs
from tests.support.programs import random_program
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
    ranks, unit = range(program.size[2]), trace.costs.unit
    starts, ends = zip(*[told.times[rank, at] for rank in ranks for at in told.events(rank)])
    assert (report.timesteps, report.makespan) == (max(starts) / unit, max(ends) / unit)
    for tier, peak in (("", report.peak), ("host", report.peaks["host"])):
        assert peak.memory == max(max(told.memory(rank, tier)) for rank in ranks)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", range(0, 2000, 10))
def test_random_programs_run_as_simulated_in_any_order(first: int) -> None:
    for seed in range(first, first + 10):
        as_simulated(random_program(seed))


@pytest.mark.slow
@pytest.mark.parametrize("primitive", ["frozen", "whole"])
@pytest.mark.parametrize("first", range(0, 500, 10))
def test_programs_of_a_primitive_run_as_simulated_in_any_order(first: int, primitive: str) -> None:
    for seed in range(first, first + 10):
        program = random_program(seed, **{primitive: True})
        report, game = as_simulated(program), (Size(*program.size), setting_of(program))
        assert time_bound(*game).least <= report.timesteps
        assert memory_bound(*game).least <= report.peak.memory


def as_simulated(program: Program) -> Report:
    """The report of a random program's runs, which are as a second simulator says."""
    trace = played(program)
    report = referee(trace)
    assert report.error is None, report.error
    assert_as_simulated(program, trace, report)
    assert played(program, 1) == trace
    again = played(program, 2)
    assert (again, referee(again)) == (trace, report)
    return report


def test_the_simulator_has_no_code_of_lib() -> None:
    (folder,) = programs.__path__
    for file in Path(folder).glob("*.py"):
        assert not re.search(r"^ *(import|from) (lib|tests.support.schedules)\b", file.read_text(), re.M), file

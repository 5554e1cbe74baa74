"""A pass says what the schedule is, and how far it is from what is possible."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from lib import Report, Setting, Trace, referee, run, trace_to_json
from lib.bounds import memory_bound, time_bound
from lib.recognition import Recognition, recognize
from lib.schedules import one_f_one_b, pipeline
from puzzles.catalog.schedule import PUZZLES
from puzzles.tracks import track_of
from puzzles.tracks.schedule.possible import above_possible


def said_on_a_pass(slug: str, module: str) -> tuple[Report, Recognition, str]:
    """The report on a solution, what it is, and everything that is said about it."""
    puzzle, track = PUZZLES[slug], track_of(slug)
    trace = run(getattr(import_module(module), slug), *puzzle.goal.size, setting=puzzle.goal.setting).trace
    report, found = referee(trace, puzzle.goal), recognize(trace)
    assert found is not None
    figures = {"timesteps": report.timesteps, "peak_memory": report.peak.memory}
    compared = track.comparison(puzzle, figures, trace_to_json(trace))
    return report, found, " ".join([track.record(puzzle, figures, report.stars, report.family), *compared])


def solutions_of(slug: str) -> list[str]:
    """The reference of a puzzle, and a record at its size of each family."""
    modules = {"": f"solutions.{slug}"}
    for record in PUZZLES[slug].goal.records:
        module = ".".join(Path(record.by).with_suffix("").parts)
        if hasattr(import_module(module), slug):
            modules.setdefault(record.family, module)
    return list(modules.values())


@pytest.mark.parametrize("slug", PUZZLES)
def test_a_pass_says_once_what_the_schedule_is_and_never_two_things(slug: str) -> None:
    goal = PUZZLES[slug].goal
    for module in solutions_of(slug):
        report, found, said = said_on_a_pass(slug, module)
        assert said.count("This is ") == 1
        if report.family == goal.family:
            assert f"This is {found.with_papers}." in said
        else:
            assert f"This is {report.family}, and the puzzle is about" in said
            assert ("More exactly, it is" in said) == (found.text != report.family)


@pytest.mark.parametrize("slug", PUZZLES)
def test_a_pass_says_how_far_it_is_from_the_bounds(slug: str) -> None:
    goal = PUZZLES[slug].goal
    report, _, said = said_on_a_pass(slug, f"solutions.{slug}")
    for unit, figure, bound in (
        ("steps", report.timesteps, time_bound(goal.size, goal.setting)),
        ("elements", report.peak.memory, memory_bound(goal.size, goal.setting)),
    ):
        above = re.search(rf"([\d.,]+) {unit} above [^(]*for any schedule of this size \(([\d.,]+): ", said)
        if figure == bound.least:
            assert above is None
            assert f"the least possible for any schedule of this size ({bound.least:,.10g}: " in said
        else:
            assert above is not None
            more, least = (float(number.replace(",", "")) for number in above.groups())
            assert (round(least + more, 3), least) == (figure, bound.least)


def sentences(trace: Trace) -> list[str]:
    report, found = referee(trace), recognize(trace)
    assert found is not None
    return list(above_possible(trace, found, report.timesteps, report.peak.memory))


def test_a_pipeline_is_compared_with_its_own_bound_first() -> None:
    time, memory = sentences(run(pipeline(one_f_one_b), 4, 8, 4, setting=Setting("stages")).trace)
    assert time.startswith("Time: the least possible for a pipeline with these stages (33: ")
    assert "9 steps above what is possible at best for any" in time
    assert "(24: " in time
    assert memory.startswith("Memory: 1,040,384 elements above")

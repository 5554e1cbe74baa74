"""Proofs by constraint programming: no pipeline is shorter than a record, and none of its length holds less."""

from __future__ import annotations

import warnings

import pytest

from lib import Setting, inflight, referee, run
from lib.schedules import one_f_one_b, pipeline, zb_h1, zb_h2
from tests.support.pipeline_solver import Problem, solved
from tests.support.truth import UNIT, costs_of, played

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its bindings, which are generated
    pytest.importorskip("ortools.sat.python.cp_model", reason="needs the extra: pip install 'training-puzzles[proof]'")

pytestmark = pytest.mark.slow


def require_least(problem: Problem) -> None:
    """There is a pipeline, which our runtime and referee confirm; there is none with one chunk less, and none that is
    shorter, whatever it holds."""
    tables = solved(problem)
    assert tables is not None
    if problem.steps == 1:
        setting = Setting(costs_of(*UNIT))
        outcome = run(pipeline(tables[0]), problem.p * problem.v, problem.m, problem.p, setting=setting)
        assert outcome.error is None
        report = referee(outcome.trace)
        assert (report.error, report.makespan) == (None, problem.horizon)
        assert max(inflight(outcome.trace, 1, 1, chunk=1)[problem.first_is_free :]) <= problem.cap
    assert solved(problem._replace(cap=problem.cap - 1)) is None
    assert solved(problem._replace(horizon=problem.horizon - 1, cap=problem.m * problem.v)) is None


@pytest.mark.parametrize(("first_is_free", "cap"), [(True, 3), (False, 4)])
def test_1f1b_holds_as_little_as_a_pipeline_of_its_time_can(first_is_free: bool, cap: int) -> None:
    trace, report = played(one_f_one_b, 4, 8)
    assert max(inflight(trace)[first_is_free:]) == cap
    require_least(Problem(4, 8, int(report.makespan), cap, first_is_free=first_is_free))


def test_zb_h1_holds_as_little_as_a_pipeline_of_its_time_can() -> None:
    trace, report = played(zb_h1, 4, 8)
    assert (max(inflight(trace, 1, 1)), report.makespan) == (4, 27)
    require_least(Problem(4, 8, 27, 4, split=True))


def test_an_interleaved_pipeline_of_the_least_time_holds_seven_chunks() -> None:
    """Megatron's order holds nine, where the model's input does not count."""
    require_least(Problem(4, 8, 57, 7, v=2, first_is_free=True))


def test_two_steps_of_zb_h2_hold_as_little_as_pipelines_of_their_time_can() -> None:
    trace, report = played(zb_h2, 4, 8, steps=2)
    assert (max(inflight(trace, 1, 1)), report.makespan) == (7, 51)
    require_least(Problem(4, 8, 51, 7, split=True, steps=2))

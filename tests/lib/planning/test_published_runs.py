"""Published step times beside the planner's: the page shows what is predicted, and its claims about errors hold."""

from __future__ import annotations

import json
from statistics import median

import pytest

from docs.generate import published
from lib.planning import gpu, plan
from tests.support.published_runs import RUNS, Published, best_efficiency, job_of, seconds_of, split_of

STORED = json.loads(published.FILE.read_text(encoding="utf-8"))
QUICK = [
    run
    for run in RUNS
    if (run.source, run.row)[1] in ("gpt-22b, sequence parallel, selective", "mixtral-8x7b, 64", "llama-3-70b, 64")
]


def check(run: Published) -> None:
    assert STORED[published.key(run)] == {"split": str(split_of(run)), "predicted": published.predicted(run)}


@pytest.mark.parametrize("run", QUICK, ids=published.key)
def test_the_page_shows_what_is_predicted(run: Published) -> None:
    check(run)


def test_a_prediction_is_a_run() -> None:
    run = QUICK[0]
    assert plan(job_of(run), split_of(run)).seconds == seconds_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS, ids=published.key)
def test_the_page_shows_all_that_is_predicted(run: Published) -> None:
    check(run)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a100", "h100"])
def test_the_efficiency_of_a_gpu_is_the_best_for_the_runs_that_it_is_fitted_to(name: str) -> None:
    assert gpu(name).efficiency == best_efficiency(name)


def test_half_of_the_runs_are_predicted_within_ten_percent_and_some_are_held_out() -> None:
    errors = {run: abs(published.error(run, STORED[published.key(run)]["predicted"])) for run in RUNS}
    held = [error for run, error in errors.items() if not run.fitted]
    assert set(STORED) == {published.key(run) for run in RUNS}
    assert len(held) > len(RUNS) / 2
    assert median(held) < 0.1
    assert median(errors.values()) < 0.1
    assert {run.gpu for run in RUNS if run.fitted} == {"a100", "h100"}

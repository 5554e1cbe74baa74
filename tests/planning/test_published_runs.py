"""Published step times beside the planner's: the page shows what is predicted, and its claims about errors hold."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from docs.generate import published
from lib.planning import plan
from lib.planning.estimate import estimate, memory_range
from lib.planning.job import GIB
from tests.support.published_runs import ALL, EXPERTS, RUNS, Published, error, percentile, seconds_of

QUICK = [
    run
    for run in RUNS
    if run.row
    in ("gpt-22b, sequence parallel, selective", "mixtral-8x7b, 64", "llama-3-70b, 64", "llama-2-7b mb2",
        "8B FSDP8 eager, op SAC", "8B FSDP fp8 full AC CP4 s131072", "mpt-7b s8192 8 GPUs mb8")
]  # fmt: skip
QUICK_EXPERTS = [run for run in EXPERTS if run.split.batches(run.job) <= 64 and run.split.pp < 8]


@pytest.mark.sampled(16)
@pytest.mark.parametrize("run", [*QUICK, *QUICK_EXPERTS], ids=lambda run: run.key)
def test_the_page_shows_what_is_predicted(run: Published) -> None:
    assert published.stored()[run.key] == published.predicted(run)
    assert published.stored_memory()[run.key] == published.gib_range(run)


@pytest.mark.parametrize("run", QUICK[:1], ids=lambda run: run.key)
def test_a_prediction_is_a_run(run: Published) -> None:
    assert plan(run.job, run.split).seconds == seconds_of(run)


@pytest.mark.slow
@pytest.mark.parametrize("run", [*ALL, *EXPERTS], ids=lambda run: run.key)
def test_the_page_shows_all_that_is_predicted(run: Published) -> None:
    assert published.stored_memory()[run.key] == published.gib_range(run)
    assert run not in (*RUNS, *EXPERTS) or published.stored()[run.key] == published.predicted(run)


def test_every_published_run_is_on_the_page() -> None:
    assert set(published.stored()) == {run.key for run in (*RUNS, *EXPERTS)}
    assert (len(ALL), len(RUNS), len(EXPERTS)) == (89, 81, 43)
    page = published.chapter()
    assert all(f"| {run.row} | {run.split}" in page and run.source.source in page for run in (*RUNS, *EXPERTS))


@pytest.mark.parametrize(
    ("kernels", "half", "nine_of_ten", "worst"),
    [("", 6.5, 19, 34), ("megatron", 3.3, 11.6, 21), ("pytorch", 10, 21.8, 34)],
)
def test_predictions_are_as_near_as_specified(kernels: str, half: float, nine_of_ten: float, worst: float) -> None:
    off = [100 * abs(error) for error in published.errors(kernels)]
    assert median(off) <= half
    assert percentile(off, 0.9) <= nine_of_ten
    assert max(off) <= worst


def test_runs_of_experts_are_predicted_as_specified_and_better_than_before() -> None:
    off = [abs(error(run, published.stored()[run.key])) for run in EXPERTS]
    before = [abs(run.before) for run in EXPERTS if run.before is not None]
    assert median(off) <= 0.06
    assert sorted(off)[int(0.9 * (len(off) - 1))] <= 0.21
    assert (len(before), round(median(before), 2)) == (36, 0.32)


def test_published_peaks_of_experts_lie_in_the_range() -> None:
    known = [(run.memory_gib, *published.stored_memory()[run.key]) for run in EXPERTS if run.memory_gib]
    assert len(known) == 5
    assert sum(low <= peak <= high for peak, low, high in known) >= 4


def test_most_published_peaks_lie_in_the_range_and_no_run_that_ran_is_refused() -> None:
    known = [(run.memory_gib, *published.stored_memory()[run.key]) for run in ALL if run.memory_gib]
    assert len(known) == 25
    assert sum(low <= peak <= high for peak, low, high in known) >= 19
    assert all(low <= peak <= 1.5 * high for peak, low, high in known)
    assert {published.verdict(run) for run in ALL} == {"fits", "depends on the code"}


@pytest.mark.slow
def test_llama_3_fits_as_its_authors_say_it_was_split() -> None:
    (run,) = [run for run in ALL if run.row == "8192 GPUs, 8,192 tokens"]
    usual = replace(run.split, zero=1, warmup=0)
    assert memory_range(run.job, usual)[0] / GIB == pytest.approx(88.4, abs=0.05)
    assert seconds_of(run) / estimate(run.job, usual).ticks * 1e6 == pytest.approx(1.02, abs=0.003)

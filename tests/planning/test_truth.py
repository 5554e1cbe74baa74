"""Figures that others published or measured: runs reproduce each one, or predict it as near as is said."""

from dataclasses import replace
from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from fractions import Fraction
from statistics import median
from typing import Any

import pytest

from docs.generate import published
from lib.planning import Job, Split, gpu, plan, transformer
from lib.planning.estimate import estimate, memory_range
from lib.planning.job import GIB
from lib.planning.plans import time_parts
from lib.planning.prices import layer_times, shared
from tests.oracles.measured_runs import ROWS, Measured
from tests.oracles.published_runs import ALL, EXPERTS, RUNS, Published, error, percentile, seconds_of
from tests.oracles.truth import CLAIMS, REPLICAS, TABLE_1, states_held
from tests.oracles.truth_runs import Claim

CLAIMS_BY_NAME = [(f"{chapter}: {claim.what}", claim) for chapter, claims in CLAIMS.items() for claim in claims]


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("claim", "sizes"), [pytest.param(c, s, id=f"{n} {s}") for n, c in CLAIMS_BY_NAME for s in c.quick]
)
def test_a_run_has_the_published_figure(claim: Claim, sizes: tuple[Any, ...]) -> None:
    assert claim.ours(*sizes) == claim.published(*sizes)


@pytest.mark.slow
@pytest.mark.parametrize("claim", [pytest.param(claim, id=name) for name, claim in CLAIMS_BY_NAME])
def test_runs_of_all_sizes_have_the_published_figure(claim: Claim) -> None:
    for sizes in claim.sets:
        assert claim.ours(*sizes) == claim.published(*sizes), sizes


def printed(value: Fraction, cell: str) -> set[str]:
    """A value with as many decimals as a printed cell: rounded half up, and cut off."""
    places = Decimal(1).scaleb(-len(cell.partition(".")[2]))
    exact = Decimal(value.numerator) / Decimal(value.denominator)
    return {str(exact.quantize(places, rounding)) for rounding in (ROUND_HALF_UP, ROUND_DOWN)}


@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param(k, marks=[] if k == 3 else pytest.mark.slow) for k in range(6)])
def test_model_states_are_the_cells_of_zero_table_1(place: int) -> None:
    for parameters, rows in TABLE_1.items():
        for zero, cell in enumerate(rows[place], 1):
            gigabytes = states_held(zero, REPLICAS[place]) * parameters / 10**9
            assert cell in printed(gigabytes, cell), (parameters, zero)


# === Published step times ===


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


# === Steps that were measured on one H100 ===


H100 = gpu("h100")
ONE = Job(transformer("llama-3-8b", layers=4), H100, 1, 1, 8192, kernels="pytorch")


def test_measured_steps_are_predicted_as_specified() -> None:
    off = [abs(row.error) for row in ROWS]
    assert len(off) == 10
    assert median(off) < 0.05
    assert max(off) < 0.12
    assert max(abs(row.error) for row in ROWS if not row.eager) < 0.06


def test_the_range_of_memory_covers_what_the_allocator_reserved() -> None:
    assert sum(row.plan.high >= row.reserved_bytes for row in ROWS) >= 8
    assert all(row.plan.high <= 1.5 * row.reserved_bytes for row in ROWS)


@pytest.mark.parametrize("row", ROWS, ids=[row.name for row in ROWS])
def test_the_optimizer_reads_and_writes_28_bytes_a_parameter(row: Measured) -> None:
    assert row.plan.job.model.weights == pytest.approx(row.parameters, rel=0.01)
    assert 28 * row.parameters / (0.76 * 3.35e12) == pytest.approx(row.optimizer_seconds, rel=0.06)


def test_terms_of_one_gpu_are_those_computed_by_hand() -> None:
    """Llama 3 8B with 4 layers and 8,192 tokens, from the bytes and flops of each kernel."""
    tokens, hidden, ffn, vocab = 8192, 4096, 14336, 128256
    of_layer = 2 * hidden * hidden + 2 * hidden * 1024 + 3 * hidden * ffn
    products = 6 * tokens * (4 * of_layer + vocab * hidden) / (0.78 * 989.4e12)
    core = 4 * 4.2 * (2 * tokens * tokens * hidden) / (0.56 * 989.4e12)
    rate = 0.76 * 3.35e12
    eager = 4 * tokens * (84 + 222) * hidden + 4 * tokens * (20 + 34) * 5120 + 4 * tokens * 28 * ffn
    loss = tokens * (44 * vocab + 132 * hidden) + 2 * vocab * hidden
    parameters = 4 * (of_layer + 2 * hidden) + 2 * vocab * hidden
    seconds = products + core + (eager + loss + (28 + 24) * parameters) / rate
    assert plan(ONE, Split()).eager_seconds == pytest.approx(seconds, rel=1e-4)


def test_code_that_is_not_compiled_is_slower_by_its_element_wise_kernels() -> None:
    """torchtitan measured both on 8 and on 128 GPUs of 500 W: 15.7 and 16.2 % (the published rows of docs/truth.md)."""
    job = Job(transformer("llama-3-8b"), gpu("h100-500w"), 8, 16, 8192, kernels="pytorch")
    eight = plan(job, Split(dp=8, zero=3, microbatch=2, recompute="ops"))
    assert eight.eager_seconds / eight.seconds == pytest.approx(1.157, abs=0.015)
    tensor = Split(tp=8, microbatch=2)
    compiled, eager = (sum(layer_times(job, shared(tensor), way)[:3]) for way in (False, True))
    assert eager > compiled


def test_megatron_has_one_time() -> None:
    job = replace(ONE, kernels="megatron")
    found = plan(job, Split())
    assert found.eager_seconds == found.seconds
    assert not job.by_kernel


def test_only_one_gpu_with_measured_rates_is_counted_by_kernel() -> None:
    assert ONE.by_kernel
    for other in (replace(ONE, gpus=2), replace(ONE, gpu=replace(H100, efficiency_alone=0.0))):
        assert not other.by_kernel
        assert other.efficiency == H100.efficiency


def test_the_parts_of_a_step_on_one_gpu_add_up() -> None:
    found = plan(ONE, Split())
    parts = time_parts(found)
    assert sum(parts.values()) == pytest.approx(found.seconds)
    assert parts["contention"] == pytest.approx(0, abs=1e-5)
    assert parts["bubble"] == pytest.approx(0, abs=1e-5)


def test_the_ends_of_a_pipeline_update_the_embedding_and_the_head() -> None:
    model = transformer("llama-3-8b", layers=8)
    job = Job(model, H100, 2, 4, 512, kernels="pytorch")
    small = replace(job, model=replace(model, vocab=1024))
    slower = plan(job, Split(pp=2)).seconds - plan(small, Split(pp=2)).seconds
    assert slower > 28 * (model.vocab - 1024) * model.hidden / (0.76 * 3.35e12)

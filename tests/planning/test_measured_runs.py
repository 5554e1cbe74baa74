"""Steps that were measured on one H100 (docs/truth.md), beside the planner's; and terms of one GPU."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from lib.planning import Job, Split, gpu, plan, transformer
from lib.planning.plans import time_parts
from lib.planning.prices import layer_times, shared
from tests.support.measured_runs import ROWS, Measured

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

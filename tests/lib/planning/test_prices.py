"""The terms of time: rate of attention, contention of collectives with computation, hops, recomputed operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lib import RuleError
from lib.planning import Job, Split, gpu, search, transformer
from lib.planning.cost_model import CONTENTION, TICKS, prices
from lib.planning.gpus import HOP, LATENCY, call_seconds
from lib.planning.layer_cost import FLASH_BACKWARD, compute_seconds

MODEL = transformer("llama-3-8b")
JOB = Job(MODEL, gpu("h100"), 8, 8)


def test_the_core_of_attention_has_the_rate_of_its_kernels() -> None:
    """Everything else is equal, so the difference is the core's flops at the two rates."""
    flops = JOB.sequence * MODEL.core_flops(JOB.sequence) / 2
    times = {name: compute_seconds(replace(JOB, kernels=name), Split(dp=8)) for name in ("megatron", "pytorch")}
    longer = flops / JOB.gpu.flops * (1 / JOB.gpu.core_pytorch - 1 / JOB.gpu.core_megatron)
    forward, back_input, back_weight = (slow - fast for slow, fast in zip(times["pytorch"], times["megatron"]))
    assert (forward, back_weight) == (pytest.approx(longer), 0)
    assert back_input == pytest.approx(3 * FLASH_BACKWARD * longer)


def test_8_bits_do_not_speed_up_the_core() -> None:
    long = replace(JOB, sequence=2**22, batch=8)
    slow, fast = (compute_seconds(replace(long, fp8=fp8), Split(dp=8))[0] for fp8 in (False, True))
    assert 0.97 < fast / slow < 1


def test_without_flash_the_core_is_a_matrix_product_with_any_kernels() -> None:
    plain = replace(JOB, flash=False)
    assert compute_seconds(plain, Split(dp=8)) == compute_seconds(replace(plain, kernels="pytorch"), Split(dp=8))


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_a_collective_beside_computation_takes_a_share_of_the_shorter(zero: int) -> None:
    split = Split(dp=8, zero=zero)
    with_overlap, without = (prices(replace(JOB, overlap=overlap), split) for overlap in (True, False))
    backward = without.back_input + without.back_weight
    reduced = CONTENTION * min(backward, without.reduce + (without.gather if zero == 3 else 0))
    forward = CONTENTION * min(without.forward, without.gather) if zero == 3 else 0
    assert with_overlap.forward - without.forward == pytest.approx(forward, abs=1)
    longer = with_overlap.back_input + with_overlap.back_weight - backward
    assert longer == pytest.approx(reduced if zero > 1 else 0, abs=2)
    assert with_overlap.update - without.update == pytest.approx(reduced if zero < 2 else 0, abs=1)


def test_a_collective_waits_for_each_further_rank() -> None:
    assert call_seconds("network", 1) == LATENCY["network"]
    assert call_seconds("network", 1025) == LATENCY["network"] + 1024 * HOP["network"]
    few, many = (prices(Job(MODEL, gpu("h100"), n, n), Split(dp=n, zero=3)) for n in (512, 1024))
    rate = 2 * few.parameters / gpu("h100").rate(8, 512) * TICKS
    bytes_more = rate * (1 / 512 - 1 / 1024)  # (n - 1) / n of a weight goes round
    assert many.gather - few.gather == pytest.approx(512 * HOP["network"] * TICKS + bytes_more, abs=2)


def test_half_of_a_forward_runs_again_with_ops() -> None:
    forward, back_input, back_weight = compute_seconds(JOB, Split(dp=8))
    assert compute_seconds(JOB, Split(dp=8, recompute="ops")) == (forward, back_input + forward / 2, back_weight)


def test_kernels_that_are_not_known_are_refused() -> None:
    with pytest.raises(RuleError, match="no kernels 'triton'; there are megatron, pytorch"):
        replace(JOB, kernels="triton")
    with pytest.raises(RuleError, match=r"gpu.core_pytorch is a share, at most 1; got 1.5"):
        gpu("h100", core_pytorch=1.5)


@pytest.mark.slow
def test_with_a_slow_network_a_pipeline_is_faster_than_zero_3() -> None:
    """70B on 256 H100 with 100 Gb/s each: gathers of ZeRO 3 slow every layer."""
    job = Job(transformer("llama-3-70b"), gpu("h100", network=12.5e9), 256, 256)
    best = search(job, best=1, front=1, tp=4, microbatch=1).best[0].split
    assert (best.zero, best.pp) == (1, 8)

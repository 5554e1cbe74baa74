"""The terms of time: rate of attention, contention of collectives with computation, hops, recomputed operations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lib.planning import Job, Split, gpu, search, transformer
from lib.planning.job import HOP, LATENCY, call_seconds
from lib.planning.prices import CONTENTION, FLASH_BACKWARD, TICKS, compute_seconds, prices
from tests.support.refusals import Refused

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
    with Refused("no such kernels", got="triton", known="megatron, pytorch"):
        replace(JOB, kernels="triton")
    with Refused("share above 1", name="core_pytorch", got=1.5):
        gpu("h100", core_pytorch=1.5)


@pytest.mark.slow
def test_with_a_slow_network_a_pipeline_is_faster_than_zero_3() -> None:
    """70B on 256 H100 with 100 Gb/s each: gathers of ZeRO 3 slow every layer."""
    job = Job(transformer("llama-3-70b"), gpu("h100", network=12.5e9), 256, 256)
    best = search(job, best=1, front=1, tp=4, microbatch=1).best[0].split
    assert (best.zero, best.pp) == (1, 8)


def test_muon_has_one_moment_and_orthogonalizes_each_full_matrix() -> None:
    """Counted matrix by matrix: five iterations of X X', A A and B X."""
    muon = replace(JOB, optimizer="muon")

    def products(rows: int, columns: int) -> int:
        m, n = min(rows, columns), max(rows, columns)
        return 5 * (2 * m * m * n + 2 * m * m * m + 2 * m * m * n)

    of_layer = 2 * products(4096, 4096) + 2 * products(4096, 1024) + 3 * products(4096, 14336)
    assert MODEL.orthogonalizing_flops() == (32 * of_layer, 0)
    rate = JOB.gpu.flops * JOB.gpu.efficiency / TICKS
    for zero, owners in ((0, 1), (1, 8)):
        split = Split(dp=8, zero=zero)
        adam, other = prices(JOB, split), prices(muon, split)
        matrices = adam.parameters * sum(adam.units) - 2 * MODEL.vocabulary_weights
        saved = (adam.state - other.state) * sum(adam.units)
        assert saved == pytest.approx(4 * matrices, rel=1e-3)
        longer = (other.update - adam.update) * sum(adam.units)
        gathers = sum(adam.units) * adam.gather if zero else 0
        less = 2 * saved / owners / JOB.gpu.bandwidth * TICKS  # read and written
        assert longer == pytest.approx(32 * of_layer / owners / rate + gathers - less, rel=1e-2)


def test_muon_gathers_matrices_along_tp_and_experts_are_orthogonalized_where_they_are() -> None:
    split = Split(dp=4, tp=2, zero=0)
    adam, muon = (prices(replace(JOB, optimizer=name), split) for name in ("adam", "muon"))
    matrices = adam.parameters * sum(adam.units) - MODEL.vocabulary_weights
    gathered = 2 * matrices / JOB.gpu.rate(2, 2) - 2 * 4 * matrices / JOB.gpu.bandwidth
    work = MODEL.orthogonalizing_flops()[0] / (JOB.gpu.flops * JOB.gpu.efficiency)
    assert (muon.update - adam.update) * sum(adam.units) == pytest.approx((work + gathered) * TICKS, rel=1e-2)
    dense, routed = transformer("mixtral-8x7b").orthogonalizing_flops()
    assert routed > dense > 0
    job = Job(transformer("mixtral-8x7b"), gpu("h100"), 64, 64, optimizer="muon")
    shared, copied = (prices(job, Split(dp=64, ep=ep)) for ep in (8, 1))
    assert shared.update * sum(shared.units) < copied.update * sum(copied.units) / 2


def test_an_optimizer_is_a_known_one() -> None:
    with Refused("none of these", name="optimizer", known="adam, muon"):
        replace(JOB, optimizer="sgd")

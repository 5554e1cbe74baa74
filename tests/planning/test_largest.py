"""What fits: the largest batch, sequence and model of a split, and the changes that save most memory."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lib import RuleError
from lib.planning import Job, Split, gpu, plan, transformer
from lib.planning.estimate import estimate, memory_range
from lib.planning.split_search import LARGEST, largest, memory_advice, savings
from tests.screens.texts import approved, approved_refusal
from tests.support.refusals import Refused

JOB = Job(transformer("llama-3-8b", layers=8), gpu("h100"), 8, 32, 4096)
SPLIT = Split(dp=4, pp=2)


def larger_by_one(what: str, job: Job, split: Split) -> tuple[Job, Split]:
    if what == "batch":
        more = split.microbatch + 1
        return replace(job, batch=job.batch // split.microbatch * more), replace(split, microbatch=more)
    if what == "sequence":
        return replace(job, sequence=job.sequence + 1024), split
    return replace(job, model=replace(job.model, layers=job.model.layers + 2)), split


@pytest.mark.sampled(1)
@pytest.mark.parametrize("what", LARGEST)
def test_the_largest_fits_and_one_more_does_not(what: str) -> None:
    sure, perhaps = largest(JOB, SPLIT, what)
    usable = JOB.gpu.usable
    assert sure.high <= usable < memory_range(*larger_by_one(what, sure.job, sure.split))[1]
    assert perhaps.low <= usable < memory_range(*larger_by_one(what, perhaps.job, perhaps.split))[0]
    assert sure.low < perhaps.low
    assert plan(sure.job, sure.split).verdict == "fits"
    assert plan(perhaps.job, perhaps.split).verdict == "depends on the code"


def test_what_does_not_fit_at_all_is_refused_with_the_changes_that_help_most() -> None:
    small = replace(JOB, gpu=gpu("h100", memory=6 * 2**30))
    with approved_refusal("largest", "what does not fit at all is refused with the changes that help most", RuleError):
        largest(small, SPLIT, "batch")
    with Refused("largest of what", known="batch, sequence, model", got="gpu"):
        largest(JOB, SPLIT, "gpu")


def test_savings_are_differences_of_estimates_in_order() -> None:
    found = savings(JOB, SPLIT)
    before = estimate(JOB, SPLIT)
    assert [one.saved for one in found] == sorted((one.saved for one in found), reverse=True)
    for one in found:
        after = estimate(JOB, one.split)
        assert (before.peak - after.peak, after.ticks - before.ticks) == (one.saved, round(one.slower * 10**6))
    assert memory_advice(JOB, SPLIT).startswith(f"the changes that help most: {found[0].what} saves")


def test_where_nothing_saves_memory_the_advice_says_so() -> None:
    tiny = Job(transformer("gpt-1.7b", layers=2, vocab=100), gpu("h100"), 1, 1, 64)
    split = Split(offload="states", zero=3)
    assert savings(tiny, split) == []
    approved("largest", "where nothing saves memory the advice says so", memory_advice(tiny, split))


def test_memory_by_rank_is_what_the_fullest_moment_holds() -> None:
    found = plan(JOB, replace(SPLIT, zero=3))
    assert [rank.layers for rank in found.ranks] == [4, 4]
    for rank in found.ranks:
        assert sum(one.bytes for one in rank.held) == rank.peak == sum(rank.low.values()) <= rank.high
    assert found.fullest.peak == found.peak == max(rank.peak for rank in found.ranks)
    assert "gathered weights" in {one.what for one in found.fullest.held}


def test_fsdp_shards_16_bytes_of_each_parameter() -> None:
    """PyTorch: weight and gradient in 32 bits and two moments; Megatron: 18, the weight in 16 bits besides."""
    job = Job(transformer("llama-3-8b", layers=8, vocab=1), gpu("h100"), 8, 8, 64)
    held = {}
    for kernels in ("pytorch", "megatron"):
        rank = plan(replace(job, kernels=kernels), Split(dp=8, zero=3, recompute="full")).fullest
        held[kernels] = sum(one.bytes for one in rank.held if one.what.startswith("shards of"))
    weights = job.model.dense_weights / 8
    assert held["megatron"] == pytest.approx(18 * weights, rel=0.13)
    assert held["pytorch"] == pytest.approx(16 * weights, rel=0.13)

"""Kinds of splits, ties, and splits with groups of shards, host memory and recomputation of some layers."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest

from docs.generate import published
from lib.planning import Job, Split, gpu, plan, search, transformer
from lib.planning.estimate import estimate
from lib.planning.plans import ERRORS, family_of, tie_text, tied
from lib.planning.prices import activation_bytes, copied_bytes, prices
from lib.planning.split_search import splits

MODEL = transformer("llama-3-8b", layers=8)
JOB = Job(MODEL, gpu("h100"), 16, 32, 4096)


@pytest.mark.parametrize("kernels", ERRORS)
def test_the_error_that_makes_a_tie_is_the_median_of_published_runs(kernels: str) -> None:
    found = median(abs(error) for error in published.errors(kernels))
    assert found <= ERRORS[kernels] < 1.6 * found


def test_a_family_is_named_by_what_its_ranks_share() -> None:
    for split, name in (
        (Split(dp=8), "data parallel"),
        (Split(dp=8, zero=3), "FSDP"),
        (Split(dp=16, zero=3, shards=8), "HSDP"),
        (Split(dp=2, pp=2, tp=2), "pipeline + tensor parallel"),
        (Split(dp=2, tp=4, cp=2, ep=2, zero=3), "tensor parallel + context parallel + expert parallel + FSDP"),
    ):
        assert family_of(split) == name


def test_a_search_lists_the_fastest_of_each_family() -> None:
    fixed = {"microbatch": 1, "recompute": "none", "schedule": "1f1b"}
    found = search(JOB, best=1, front=1, **fixed)
    best: dict[str, int] = {}
    for split in splits(JOB, fixed):
        ticks, peak = estimate(JOB, split)
        if peak <= JOB.gpu.usable:
            best[family_of(split)] = min(ticks, best.get(family_of(split), ticks))
    near = {kind: ticks / 10**6 for kind, ticks in best.items() if ticks <= 2 * min(best.values())}
    assert {one.name: one.seconds for one in found.families} == near
    assert [one.seconds for one in found.families] == sorted(near.values())
    assert len(near) > 4


def test_plans_within_the_error_are_a_tie_with_its_reason() -> None:
    job = replace(JOB, kernels="pytorch")
    plans = [plan(job, split) for split in (Split(dp=16, zero=2), Split(dp=16, zero=3), Split(dp=2, tp=8))]
    first, second, slow = plans
    assert second.seconds / first.seconds < 1.1 < slow.seconds / first.seconds
    assert tied(plans) == [first, second]
    text = tie_text(plans)
    assert "Plans 1, 2 are" in text
    assert "10 %" in text
    assert "plan 2 needs" in text.lower()
    assert "plan 1 sends" in text
    assert tie_text(plans[1:]) == tie_text([first]) == ""


def test_hsdp_gathers_within_a_machine_and_reduces_between_machines() -> None:
    split = Split(dp=16, zero=3, shards=8)
    mine, all_shards = plan(JOB, split), plan(JOB, replace(split, shards=0))
    assert (mine.links["dp"], mine.links["groups"], all_shards.links["dp"]) == ("nvlink", "network", "network")
    priced, of_all = prices(JOB, split), prices(JOB, replace(split, shards=0))
    assert priced.gather < of_all.gather
    shard = priced.parameters * priced.units[0] / 8
    batches = split.batches(JOB)
    assert mine.sent["groups"] == pytest.approx(batches * 2 * shard * JOB.gradient / 2, rel=1e-6)  # 2 groups: 2 (n-1)/n
    assert mine.memory["states"] == pytest.approx(2 * all_shards.memory["states"], rel=1e-6)


def test_recomputation_of_every_second_layer_is_half_of_each() -> None:
    none, half, full = (
        Split(dp=16, recompute=name, every=every) for name, every in (("none", 1), ("full", 2), ("full", 1))
    )
    kept = [activation_bytes(JOB, split) for split in (none, half, full)]
    assert kept[1] == (kept[0] + kept[2]) / 2
    times = [plan(JOB, split).seconds for split in (none, half, full)]
    assert times[1] == pytest.approx((times[0] + times[2]) / 2, rel=0.01)


def test_activations_in_the_hosts_memory_are_copied_twice() -> None:
    device, host = Split(dp=16), Split(dp=16, offload="activations")
    before, after = plan(JOB, device), plan(JOB, host)
    kept = activation_bytes(JOB, device) - activation_bytes(JOB, host)
    assert copied_bytes(JOB, host) == kept > 0 == copied_bytes(JOB, device)
    assert after.sent["host"] == pytest.approx(2 * kept * MODEL.layers * host.batches(JOB))
    assert after.memory["activations"] < before.memory["activations"] / 5
    slow = replace(JOB, gpu=gpu("h100", host=8e9))
    copies = 2 * kept / (8e9 * 0.8) * MODEL.layers * host.batches(slow)
    assert plan(slow, host).seconds >= copies > plan(slow, device).seconds


@pytest.mark.slow
@pytest.mark.parametrize(("model", "name", "gpus"), [("gpt-3", "a100", 10240), ("llama-3-405b", "h100", 10240)])
def test_a_search_of_ten_thousand_gpus_plays_few_and_estimates_few(model: str, name: str, gpus: int) -> None:
    """Its time is theirs: a run takes about a second, an estimate a twentieth of that."""
    found = search(Job(transformer(model), gpu(name), gpus, gpus))
    assert len({*found.best, *found.front}) <= 11
    assert found.estimated < 250 < found.considered

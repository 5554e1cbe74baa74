"""Chapter `inference`: the targets' formulas, derived in other ways than the references use."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from lib.engine import launch
from puzzles.catalog.engine import ENGINE_PUZZLES, trials_of
from puzzles.content.engine.inference.trials import chain_calls
from solutions.engine.host_cache import HostCache
from solutions.engine.prefetch import Prefetch
from solutions.engine.stream import Stream


def elapsed(cls: type, batch: int) -> float:
    """Time of 8 layers with so many rows on each device, in units of 512 flops: a fetch takes 4, a layer `batch`."""
    params, (call,) = chain_calls(batch=batch)
    with launch(cls, 4, layers=8, model_dim=16, byte_time={"host": 8}) as run:
        run.load_checkpoint(params)
        loaded = run.meters[0].clock
        run.forward(list(call.arguments))
        return (run.meters[0].clock - loaded) / 512


@pytest.mark.parametrize(("c", "ahead", "in_turn"), [(1, 33, 40), (2, 34, 48), (4, 36, 64), (8, 68, 96)])
def test_a_layer_ahead_takes_the_longer_of_fetch_and_product(c: int, ahead: int, in_turn: int) -> None:
    f, layers = 4, 8
    assert (f + (layers - 1) * max(f, c) + c, layers * (f + c)) == (ahead, in_turn)
    assert (elapsed(Prefetch, c), elapsed(Stream, c)) == (ahead, in_turn)


def test_more_layers_ahead_gain_nothing() -> None:
    class TwoAhead(Prefetch):
        def forward(self, x: Any) -> Any:
            coming = [self.host.fetch_async(name) for name in self.names[:2]]
            for i in range(len(self.names)):
                shard = coming.pop(0).wait()
                coming += [self.host.fetch_async(name) for name in self.names[i + 2 : i + 3]]
                x = np.maximum(x @ self.all_gather(shard), 0)
            return x

    assert [elapsed(TwoAhead, c) for c in (1, 2, 4, 8)] == [33, 34, 36, 68]


def fewest_misses(layers: int, passes: int, fits: int) -> int:
    """By trying every cache: how often a shard is not there, if each use may leave any of what it saw in the cache."""
    states = {frozenset[int](): 0}
    for layer in list(range(layers)) * passes:
        after: dict[frozenset[int], int] = {}
        for held, misses in states.items():
            now = misses + (layer not in held)
            choices = [held, *((held - {out}) | {layer} for out in held)]
            choices += [held | {layer}] if len(held) < fits else []
            for kept in choices:
                after[kept] = min(now, after.get(kept, now))
        states = after
    return min(states.values())


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("layers", "passes", "fits"), list(product((3, 5, 6), (1, 3), (1, 2))))
def test_no_cache_misses_less_often_than_one_that_keeps_what_came_first(layers: int, passes: int, fits: int) -> None:
    params, calls = chain_calls(layers, passes=passes)
    with launch(HostCache, 4, layers=layers, model_dim=16, host_bytes=256 * fits) as run:
        run.load_checkpoint(params)
        for call in calls:
            run.forward(list(call.arguments))
        misses = {meter.disk["read"] // 256 for meter in run.meters}
    assert misses == {fewest_misses(layers, passes, fits)} == {layers + (passes - 1) * (layers - fits)}


@pytest.mark.parametrize("slug", ["Stream", "Prefetch", "HostCache"])
def test_sums_are_exact_in_every_trial(slug: str) -> None:
    """In float64 the same comes out: no sum of whole numbers was too large for float32. And it is not all zeros."""
    for make in trials_of(ENGINE_PUZZLES[slug]):
        trial = make()
        for call in trial.calls:
            assert call.wanted is not None
            x = np.concatenate(call.arguments).astype(np.float64)
            for weight in trial.params.values():
                x = np.maximum(x @ weight, 0)
                assert np.abs(x).max() < 2**20
            assert np.array_equal(x, np.concatenate(call.wanted))
            assert np.count_nonzero(x) > x.size // 8

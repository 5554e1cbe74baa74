"""Runs with each rule train as one device does and need each result, are read as written, and start in any order."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from itertools import islice, permutations
from typing import Any, NamedTuple

import pytest

from lib import Model, Setting, Trace, referee, run, trace_from_json, trace_to_json
from lib.bounds import memory_bound, time_bound
from lib.engine.replay.replay import replay
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.seq_pipeline import seq_pipeline
from solutions.streaming_diloco import streaming_diloco
from solutions.ulysses import ulysses
from solutions.weight_versions import weight_versions
from tests.lib.rules import test_clipping as clipping
from tests.lib.rules import test_frozen_and_whole as frozen
from tests.lib.rules import test_host_update as hosts
from tests.lib.rules import test_lag as lag
from tests.lib.rules import test_outer_steps as outer
from tests.lib.rules import test_pair as pairs
from tests.lib.rules import test_rooted as rooted
from tests.lib.rules import test_vocabulary as vocabulary
from tests.support import finished
from tests.support.mutants import zeroed
from tests.support.schedules import clipping as norms


class Run(NamedTuple):
    """A schedule that trains, and the operations of which the results with these numbers, from 1, are made zero."""

    schedule: Callable[[Model], Any]
    size: tuple[int, int, int]
    setting: Setting
    zeroed: dict[str, tuple[int, ...]]

    def trace(self, order: Any = None) -> Trace:
        return finished(self.schedule, *self.size, order, setting=self.setting).trace


def each(names: str, *nth: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names.split(), nth)


def attention(costs: str) -> Setting:
    return Setting(costs, layer="attention", shares=8)


def frozen_layers(layer: str, steps: int) -> Run:
    game = Setting("parts", steps=steps, layer=layer, frozen=(0, 2))
    return Run(frozen.training(steps), (4, 1, 1), game, each("forward loss backward_input backward_weight update", 1))


def head_on(ranks: int, *lengths: Fraction) -> Run:
    game = Setting(vocabulary.TINY, kinds=("block", "block", "head"), lengths=lengths)
    results = each("forward loss backward_input backward_weight update", 1, 2)
    return Run(vocabulary.data_parallel, (3, 2, ranks), game, results | each("allreduce", *(1, 2)[: ranks - 1]))


ATTENTION = each("keys attend attend_backward keys_backward", 1, 7)
RUNS: dict[str, Run] = {
    "lag": Run(weight_versions, (3, 3, 3), lag.LAG, each("forward loss backward add update", 2)),
    "host": Run(host_update, (3, 2, 1), hosts.GAME, each("forward loss backward", 2) | each("fetch", 2, 4, 7)),
    "host in turn": Run(hosts.one_step, (1, 1, 1), Setting(hosts.IN_TURN), each("fetch", 1)),
    "outer steps": Run(
        streaming_diloco, (2, 2, 2), outer.setting(),
        each("forward loss backward update delta allreduce outer_update merge", 1, 3),
    ),
    "pairs": Run(pairs.DUALPIPEV, (4, 6, 2), pairs.SETTING, each("pair", 1, 2, 3)),
    "sequences": Run(seq_pipeline, (4, 2, 4), attention("sequences"), ATTENTION | each("receive", 1, 7)),
    "ring": Run(ring_context, (2, 1, 4), attention("grouped"), ATTENTION | each("receive", 1, 7)),
    "heads": Run(ulysses, (2, 1, 4), attention("context"), ATTENTION | each("tokens", 1, 7)),
    **{name: Run(*one, each("broadcast reduce", 1)) for name, one in rooted.RUNS.items()},
    "norms": Run(norms.data_parallel, (3, 4, 2), Setting(steps=2, clip=True), {"norm": (1, 6), "add": (2,)}),
    "norms of shards": Run(norms.sharded, (2, 2, 2), clipping.GAME, each("norm", 3)),
    "norms of stages": Run(norms.pipeline, (3, 2, 3), clipping.GAME, {"norm": (2,), "allreduce": (1,)}),
    "norm on the host": Run(norms.on_the_host, (1, 2, 1), Setting("host_updates", clip=True), each("norm", 1)),
    "head": head_on(1, Fraction(1), Fraction(1, 2)),
    "head on two": head_on(2),
    "head on four": head_on(4, Fraction(1), Fraction(1, 2)),
    **{f"frozen {layer}, {steps}": frozen_layers(layer, steps) for layer in ("dense", "block") for steps in (1, 3)},
}  # fmt: skip


def named(name: str, *more: Any) -> Any:
    """The arguments of a test: with attention on all shares it is slow."""
    return pytest.param(name, *more, marks=[pytest.mark.slow] if RUNS[name].setting.layer == "attention" else [])


ZEROED = [named(name, op, nth) for name, one in RUNS.items() for op, nths in one.zeroed.items() for nth in nths]


@pytest.mark.parametrize("name", [named(name) for name in RUNS])
def test_a_run_is_read_as_written_within_its_bounds_and_replayed(name: str) -> None:
    trace = RUNS[name].trace()
    report = referee(trace)
    assert report.error is None
    assert report.timesteps >= time_bound(trace.size, trace.setting).least
    assert report.peak.memory >= memory_bound(trace.size, trace.setting).least
    assert trace_from_json(trace_to_json(trace)) == trace
    result = replay(trace, small=True)
    assert result.passed, result


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_it_is_replayed_in_full_size(name: str) -> None:
    result = replay(RUNS[name].trace(), small=False)
    assert result.passed, result
    assert result.error < 1e-5


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("name", "operation", "nth"), ZEROED)
def test_zeroing_any_one_result_changes_the_weights(
    name: str, operation: str, nth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = RUNS[name].trace()
    with zeroed(monkeypatch, operation, nth):
        assert not replay(trace, small=True).same_weights


@pytest.mark.parametrize("name", [named(name) for name, one in RUNS.items() if one.size[2] > 1])
def test_ranks_start_in_any_order(name: str) -> None:
    one, traces = RUNS[name], set()
    for order in islice(permutations(range(one.size[2])), 6):
        traces.add(trace_to_json(run(one.schedule, *one.size, order, setting=one.setting).trace))
    assert len(traces) == 1

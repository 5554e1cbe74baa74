"""Runs with each rule: on tensors, as files, in any order, with a forged row, and in pictures."""

from collections.abc import Callable
from fractions import Fraction
from itertools import islice, permutations
from typing import Any, NamedTuple

import pytest

import drawing
from lib import Model, Setting, Trace, referee, run, trace_from_json, trace_to_json
from lib.engine.replay.replay import replay
from lib.pipelines.bounds import memory_bound, time_bound
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.seq_pipeline import seq_pipeline
from solutions.streaming_diloco import streaming_diloco
from solutions.ulysses import ulysses
from solutions.weight_versions import weight_versions
from tests.ledger import test_collectives as collectives
from tests.ledger import test_lanes as lanes
from tests.ledger import test_layers as layers
from tests.ledger import test_pair as pairs
from tests.ledger import test_tiers as tiers
from tests.ledger import test_updates as updates
from tests.support import finished
from tests.support.mutants import zeroed
from tests.support.refusals import Refused, edited, nth, with_columns
from tests.support.schedules import clipping as norms
from tests.support.schedules.splits import uneven
from tests.support.schedules.tiers import TWO_TIERS, moved


class Run(NamedTuple):
    """A schedule that trains, and the operations of which the results with these numbers, from 1, are made zero."""

    schedule: Callable[[Model], Any]
    size: tuple[int, int, int]
    setting: Setting
    zeroed: dict[str, tuple[int, ...]]

    def trace(self, order: Any = None) -> Trace:
        return finished(self.schedule, *self.size, order, setting=self.setting).trace


def each(names: str, *numbers: int) -> dict[str, tuple[int, ...]]:
    return dict.fromkeys(names.split(), numbers)


def attention(costs: str) -> Setting:
    return Setting(costs, layer="attention", shares=8)


def frozen_layers(layer: str, steps: int) -> Run:
    game = Setting("parts", steps=steps, layer=layer, frozen=(0, 2))
    return Run(layers.training(steps), (4, 1, 1), game, each("forward loss backward_input backward_weight update", 1))


def head_on(ranks: int, *lengths: Fraction) -> Run:
    game = Setting(layers.TINY, kinds=("block", "block", "head"), lengths=lengths)
    results = each("forward loss backward_input backward_weight update", 1, 2)
    return Run(layers.data_parallel, (3, 2, ranks), game, results | each("allreduce", *(1, 2)[: ranks - 1]))


def uneven_layers(setting: Setting, counts: tuple[int, ...], batches: int) -> Run:
    results = each("forward loss backward add update", 2)
    return Run(uneven(counts), (sum(counts), batches, len(counts)), setting, results if not setting.costs.slow else {})


ATTENTION = each("keys attend attend_backward keys_backward", 1, 7)
RUNS: dict[str, Run] = {
    "lag": Run(weight_versions, (3, 3, 3), updates.LAG, each("forward loss backward add update", 2)),
    "host": Run(host_update, (3, 2, 1), tiers.GAME, each("forward loss backward", 2) | each("fetch", 2, 4, 7)),
    "host at once": Run(tiers.one_step, (1, 1, 1), Setting(tiers.COSTS_HERE), each("fetch", 1)),
    "host in turn": Run(tiers.one_step, (1, 1, 1), Setting(tiers.UPDATES_IN_TURN), each("fetch", 1)),
    "moves": Run(moved, (1, 2, 1), Setting(TWO_TIERS), {}),
    "moves in turn": Run(moved, (1, 2, 1), Setting(tiers.MOVES_IN_TURN), {}),
    "outer steps": Run(
        streaming_diloco, (2, 2, 2), updates.setting(),
        each("forward loss backward update delta allreduce outer_update merge", 1, 3),
    ),
    "pairs": Run(pairs.DUALPIPEV, (4, 6, 2), pairs.SETTING, each("pair", 1, 2, 3)),
    "sequences": Run(seq_pipeline, (4, 2, 4), attention("sequences"), ATTENTION | each("receive", 1, 7)),
    "ring": Run(ring_context, (2, 1, 4), attention("grouped"), ATTENTION | each("receive", 1, 7)),
    "heads": Run(ulysses, (2, 1, 4), attention("context"), ATTENTION | each("tokens", 1, 7)),
    **{name: Run(*one, each("broadcast reduce", 1)) for name, one in collectives.RUNS.items()},
    "norms": Run(norms.data_parallel, (3, 4, 2), Setting(steps=2, clip=True), {"norm": (1, 6), "add": (2,)}),
    "norms of shards": Run(norms.sharded, (2, 2, 2), updates.CLIPPING, each("norm", 3)),
    "norms of stages": Run(norms.pipeline, (3, 2, 3), updates.CLIPPING, {"norm": (2,), "allreduce": (1,)}),
    "norm on the host": Run(norms.on_the_host, (1, 2, 1), Setting("host_updates", clip=True), each("norm", 1)),
    "head": head_on(1, Fraction(1), Fraction(1, 2)),
    "head on two": head_on(2),
    "head on four": head_on(4, Fraction(1), Fraction(1, 2)),
    "two shards of a head": Run(layers.two_shards, (2, 1, 1), layers.cut_setting(1), {}),
    **{name: uneven_layers(*one) for name, one in layers.UNLIKE.items()},
    **{f"chain of {name}": Run(*one, {}) for name, one in lanes.CHAINS.items() if name != "tiers"},
    "replicas of two ranks": Run(updates.replicas_of_two_ranks, (1, 4, 4), updates.OF_TWO_RANKS, {}),
    "outer state on the host": Run(updates.with_a_parked_outer_state, (1, 1, 1), updates.PARKED_OUTER, {}),
    **{f"frozen {layer}, {steps}": frozen_layers(layer, steps) for layer in ("dense", "block") for steps in (1, 3)},
}  # fmt: skip


def named(name: str, *more: Any) -> Any:
    """The arguments of a test: it is slow with attention, which has the most rows."""
    return pytest.param(name, *more, marks=[pytest.mark.slow] if RUNS[name].setting.layer == "attention" else [])


ZEROED = [named(name, op, n) for name, one in RUNS.items() for op, numbers in one.zeroed.items() for n in numbers]


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
@pytest.mark.parametrize(("name", "operation", "number"), ZEROED)
def test_zeroing_any_one_result_changes_the_weights(
    name: str, operation: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = RUNS[name].trace()
    with zeroed(monkeypatch, operation, number):
        assert not replay(trace, small=True).same_weights


@pytest.mark.parametrize("name", [named(name) for name, one in RUNS.items() if one.size[2] > 1])
def test_ranks_start_in_any_order(name: str) -> None:
    one, traces = RUNS[name], set()
    for order in islice(permutations(range(one.size[2])), 6):
        traces.add(trace_to_json(run(one.schedule, *one.size, order, setting=one.setting).trace))
    assert len(traces) == 1


# --- Forged rows ---

FORGED: list[tuple[str, int, str, dict[str, Any], Refused]] = [
    ("outer steps", 0, "outer_update", {"end": 0}, Refused("other ticks")),
    ("outer steps", 0, "delta", {"inputs": (0,)}, Refused("other record", name="delta")),
    ("outer steps", 0, "merge", {"end": 10_000}, Refused("other ticks")),
    ("outer steps", 0, "load_weights", {"args": (0, 1, None, 2)}, Refused("record of outer", got=2)),
    ("outer steps", 0, "load_weights", {"args": (0, 1)}, Refused("other values", values=2, first=0)),
    ("outer steps", 0, "set_final_copy", {"layer": 1}, Refused("other layer", call="set_final_copy", layer=1)),
    ("owned", 1, "broadcast", {"args": ()}, Refused("no root", name="broadcast")),
    ("owned", 1, "broadcast", {"args": (None, None, True)}, Refused("no root", name="broadcast")),
    ("owned", 1, "broadcast", {"args": (None, None, 7)}, Refused("root outside group", root=7, group="0, 1, 2")),
    ("owned", 1, "broadcast", {"args": (None, 3, 0)}, Refused("no labels")),
    (
        "owned", 1, "broadcast", {"inputs": (0,)},
        Refused("other layer", layer=0, value="weight of layer 0, unsharded, step 0"),
    ),
    ("owned", 1, "broadcast", {"inputs": (0,), "layer": 0}, Refused("value not from root", rank=1, root=2)),
    ("owned", 1, "reduce", {"inputs": ()}, Refused("other record", name="reduce")),
    ("owned", 1, "reduce", {"args": (None, None, 1)}, Refused("other calls")),
    ("owned", 1, "reduce", {"end": 1}, Refused("other ticks")),
    ("norms of stages", 0, "norm", {"end": 1}, Refused("other ticks")),
    ("norms of stages", 0, "norm", {"inputs": ()}, Refused("other record", name="norm")),
    ("norms of stages", 0, "norm", {"layer": 1}, Refused("norm of another layer", layer=1)),
    ("norms of stages", 0, "update", {"inputs": (0,) * 5}, Refused("other record", name="update")),
    ("moves in turn", 0, "move", {"end": 10_000}, Refused("other ticks")),
    ("moves in turn", 0, "move", {"args": ("disk",)}, Refused("moved already")),
    ("moves in turn", 0, "move", {"args": ("cloud",)}, Refused("no such tier", tier="cloud")),
    ("moves in turn", 0, "move", {"args": ()}, Refused("other record", name="move")),
    *[
        (name, 0, "tier_update", changes, expected)
        for name, other in (("host at once", "other message"), ("host in turn", "other values"))
        for changes, expected in (
            ({"end": 41}, Refused("other ticks")),
            ({"args": ("disk",)}, Refused("no such tier", tier="disk")),
            ({"args": ()}, Refused("other record", name="tier_update")),
            ({"outputs": (6,)}, Refused(other)),
        )
    ],
]  # fmt: skip


@pytest.mark.parametrize(("name", "rank", "operation", "changes", "expected"), FORGED)
def test_a_forged_row_is_refused(
    name: str, rank: int, operation: str, changes: dict[str, Any], expected: Refused
) -> None:
    expected.require(referee(edited(RUNS[name].trace(), with_columns(operation, **changes), rank)).error)


def test_an_update_without_the_norm_that_it_had_is_refused() -> None:
    trace = RUNS["norms of stages"].trace()
    inputs = trace.ranks[0][nth(trace.ranks[0], "update")].inputs[:3]
    Refused("no scale").require(referee(edited(trace, with_columns("update", inputs=inputs), 0)).error)


# --- Pictures ---

SHOWN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "outer steps": (("outer update",), ("O",)),
    "owned": (("BC", "RD"), ()),
    "norms of stages": (("AR",), ()),
    "host": (("update on a tier",), ("u",)),
    "moves": (("move between tiers",), ("m",)),
    "pairs": (("forward and backward",), ("P forward and backward",)),
    "head on four": (("rank 3",), ("F2H",)),
}
"""Words in the picture of a run, and in its picture as text."""


@pytest.mark.parametrize("name", SHOWN)
def test_a_picture_shows_the_rule(name: str) -> None:
    trace, (words, text) = RUNS[name].trace(), SHOWN[name]
    assert [word for word in words if word not in str(drawing.svg(drawing.draw(trace)))] == []
    assert [word for word in text if word not in drawing.text(trace)] == []

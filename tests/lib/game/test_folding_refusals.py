"""What a folded run refuses, and who refuses folded runs."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from drawing import draw
from drawing.runs.text import text
from lib import (
    DeadlockError,
    Dist,
    Goal,
    Model,
    Op,
    RuleError,
    Setting,
    Size,
    Trace,
    TraceError,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.game.named_costs import COSTS
from solutions.ddp import ddp
from solutions.fsdp import fsdp
from tests.support.schedules.folded import Plan, trained
from tests.support.unfolding import Schedule, both

OVERLAP = COSTS["overlap"]


# --- What a folded run refuses ---


def folded_refusal(schedule: Schedule, dp: int = 4, tp: int = 2, batches: int = 8, **more: Any) -> str:
    """What a folded run says to a schedule of one layer, with the place."""
    setting = Setting(mesh=(("dp", dp), ("tp", tp)), layer="block", **more)
    outcome = run(schedule, 1, batches, dp * tp, setting=setting, fold="dp")
    assert isinstance(outcome.error, RuleError)
    return str(outcome.error)


async def message_to_another_replica(model: Model) -> None:
    await model.pass_to(model.rank + len(model.axis("tp")), model.get_activation([2 * model.index("dp")]))


async def message_to_one_rank(model: Model) -> None:
    await model.pass_to(1, model.get_activation([2 * model.index("dp")]))


async def message_from_one_rank(model: Model) -> None:
    await model.receive(1)


async def a_group_of_one_replica(model: Model) -> None:
    await model.allgather(model.load_weights(0)[0], 0, group=[0, 1])


async def without_oneself(model: Model) -> None:
    await model.allgather(model.load_weights(0, model.index("dp"), 4)[0], 0, group=range(0, 8, 2))


async def another_axis(model: Model) -> None:
    await model.allgather(model.load_weights(0)[0], 0, group="pp")


async def gathers_what_is_alike(model: Model) -> None:
    await model.allgather(model.load_weights(0, 0, 4)[0], 0, group="dp")


async def adds_other_shards(model: Model) -> None:
    grad = model.fake_grad(0, [2 * model.index("dp")]).shard(model.index("dp"), 4)
    await model.allreduce(grad, 0, group="dp")


async def reduces_twice(model: Model) -> None:
    grad = await model.allreduce(model.fake_grad(0, [2 * model.index("dp")]), 0, group="dp")
    await model.allreduce(grad, 0, group="dp")


async def gathers_unreduced(model: Model) -> None:
    await model.allgather(model.fake_grad(0, [2 * model.index("dp")]).shard(model.index("dp"), 4), 0, group="dp")


async def activations_along_dp(model: Model) -> None:
    await model.allreduce(model.get_activation([2 * model.index("dp")]), 0, group="dp")


async def forward_with_a_shard(model: Model) -> None:
    model.forward(0, model.get_activation([2 * model.index("dp")]), model.load_weights(0, model.index("dp"), 4)[0])


async def a_gap(model: Model) -> None:
    weight = model.load_weights(0, model.index("dp") * 2, 8)[0]
    await model.allgather(weight, 0, group="dp")


async def shards_beyond(model: Model) -> None:
    model.load_weights(0, model.index("dp"), 2)


REFUSED: dict[str, tuple[Schedule, list[str]]] = {
    "another replica": (message_to_another_replica, ["rank 0, t=0, pass_to(", "another replica", "model.rank + 1"]),
    "one rank": (message_to_one_rank, ["pass_to(1)", "rank 1", "same rank for all replicas", "model.axis"]),
    "from one rank": (message_from_one_rank, ["receive(1)", "rank 1", "same rank for all replicas"]),
    "group": (a_group_of_one_replica, ["allgather", "{0, 1}", "4 replicas", "group='tp'"]),
    "axis": (another_axis, ["no axis 'pp'", "dp, tp"]),
    "batch": (lambda model: model.get_activation([2]), ["batch 2", "another replica", "2 d", "model.index('dp')"]),
    "without oneself": (without_oneself, ["rank 1", "not in the group of rank 0 of every dp"]),
    "batches": (
        lambda model: model.get_activation([model.rank * 2]),
        ["batch would differ", "4 d on replica d of 4", "own batches"],
    ),
    "one batch": (lambda model: model.get_activation([1]), ["batch 1", "same batch for all 4", "model.index('dp')"]),
    "a range": (lambda model: model.get_activation(range(2)), ["batch 0", "replica d has 2 from 2 d on"]),
    "one batch of a gradient": (lambda model: model.fake_grad(0, {0}), ["fake_grad", "batch 0", "same batch"]),
    "no batch": (lambda model: model.get_activation([8]), ["batch 8 does not exist"]),
    "alike": (gathers_what_is_alike, ["allgather(layer=0)", "every replica contributes the same"]),
    "other shards": (adds_other_shards, ["allreduce(layer=0)", "another shard", "its own on each of 4 replicas"]),
    "twice": (reduces_twice, ["allreduce(layer=0)", "reduced over them already", "reduce it once"]),
    "unreduced": (gathers_unreduced, ["allgather(layer=0)", "other batches", "reduce first"]),
    "activations": (activations_along_dp, ["allreduce", "activations along 'dp'", "do not fold"]),
    "shard": (forward_with_a_shard, ["forward(layer=0)", "allgather it first"]),
    "gap": (a_gap, ["allgather(layer=0)", "gaps"]),
    "beyond": (shards_beyond, ["load_weights(layer=0)", "d on replica d of 4", "gaps"]),
    "branch": (lambda model: model.index("dp") == 0 and None, ["d on replica d of 4", "'== 0'", "do not fold"]),
    "truth": (lambda model: bool(model.index("dp")), ["d on replica d of 4", "differ"]),
    "order": (lambda model: model.rank < 4, ["2 d on replica d of 4", "'< 4'"]),
    "remainder": (lambda model: model.rank % 4, ["'// 4'", "differ"]),
    "power": (lambda model: 2 ** model.index("dp"), ["pow", "differ"]),
    "layer": (lambda model: model.fake_grad(model.index("dp"), []), ["fake_grad", "layer would differ"]),
    "count": (lambda model: model.load_weights(0, 0, 1 + model.index("dp")), ["load_weights", "total would differ"]),
    "tokens": (
        lambda model: model.get_activation([2 * model.index("dp")]).shard(model.index("dp"), 4),
        ["shard()", "differ"],
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_alike_on_all_replicas_is_refused(name: str) -> None:
    schedule, says = REFUSED[name]
    text = folded_refusal(schedule)
    assert all(words in text for words in says), text


def test_a_deadlock_names_the_group() -> None:
    async def schedule(model: Model) -> None:
        zero = model.fake_grad(0, [])
        if model.index("tp") == 0:
            await model.allreduce(zero, 0, group=("dp", "tp"))
        else:
            await model.allreduce(zero, 0, group="tp")

    error = run(schedule, 1, 8, 8, setting=Setting(mesh=(("dp", 4), ("tp", 2))), fold="dp").error
    assert isinstance(error, DeadlockError)
    assert all(words in str(error) for words in ("for rank 1", "in the group of ranks 0, 1 on", "for rank 0"))


def test_a_layer_whose_shards_are_not_all_final_is_incomplete() -> None:
    async def schedule(model: Model) -> None:
        tp = model.index("tp")
        weight, state = model.load_weights(0, model.rank, 8)
        grad = await model.scatterreduce(model.fake_grad(0, [] if tp else [2 * model.index("dp")]), 0)
        rest = await model.scatterreduce(model.fake_grad(0, [2 * model.index("dp") + 1] if tp else []), 0)
        weight, state = model.update(0, grad + rest, weight, state)
        if tp == 0:
            model.set_final_weight(0, weight)

    for fold in ("", "dp"):
        trace = run(schedule, 1, 8, 8, setting=Setting(mesh=(("dp", 4), ("tp", 2))), fold=fold).trace
        assert "lacks shards 1, 3, 5, 7 of 8" in str(referee(trace).error)


def test_a_refused_number_names_the_line() -> None:
    def schedule(model: Model) -> None:
        if model.index("dp"):
            pass

    outcome = run(schedule, 1, 4, 4, setting=Setting(mesh=(("dp", 4),)), fold="dp")
    assert isinstance(outcome.error, RuleError)
    assert outcome.error.line == schedule.__code__.co_firstlineno + 1


@pytest.mark.parametrize(
    ("dp", "batches", "says"),
    [(3, 8, ["8 batches", "3 replicas", "'dp'"]), (4, 2, ["2 batches", "4 replicas"])],
)
def test_batches_are_dealt_out_evenly(dp: int, batches: int, says: list[str]) -> None:
    with pytest.raises(RuleError) as refused:
        run(ddp, 1, batches, dp, setting=Setting(mesh=(("dp", dp),)), fold="dp")
    assert all(words in str(refused.value) for words in says)


@pytest.mark.parametrize(
    ("mesh", "fold", "says"),
    [
        ((("pp", 2), ("dp", 2)), "dp", ["fold='dp'", "first axis", "'pp'", "put 'dp' first"]),
        ((), "dp", ["fold='dp'", "no mesh"]),
        ((("dp", 4),), "dq", ["fold='dq'", "'dp'"]),
        ((("dp", 4),), 4, ["fold", "name of an axis", "4"]),
    ],
)
def test_only_the_first_axis_is_folded(mesh: Any, fold: Any, says: list[str]) -> None:
    with pytest.raises(RuleError) as refused:
        Dist(4, setting=Setting(mesh=mesh), fold=fold)
    assert all(words in str(refused.value) for words in says)


# --- Dist, traces, judges ---


def test_a_folded_dist_has_models_for_one_replica() -> None:
    dist = Dist(8192, mesh={"dp": 1024, "pp": 8}, fold="dp")

    async def look() -> None:
        models = [Model(rank, dist, layers=8, batches=1024) for rank in range(8)]
        assert [int(model.rank) for model in models] == list(range(8))
        assert [model.index("pp") for model in models] == list(range(8))
        assert models[3].index("dp") == models[5].index("dp")
        assert models[3].RANKS == 8192
        assert len(models[3].axis("dp")) == 1024
        assert models[3].rank % 8 == 3
        with pytest.raises(RuleError, match=r"rank 11 is of another replica.*rank 3 does.*ranks 0 to 7"):
            Model(11, dist, layers=8, batches=1024)

    asyncio.run(look())


def folded_fsdp() -> Trace:
    return run(fsdp, 3, 4, 4, setting=Setting(mesh=(("dp", 4),)), fold="dp").trace


def test_a_puzzle_refuses_a_folded_trace_by_name() -> None:
    trace = folded_fsdp()
    report = referee(trace, Goal("fsdp", trace.size, 99, 10**9, setting=replace(trace.setting, fold="")))
    assert report.status == "failed"
    assert all(words in str(report.error) for words in ("folded along 'dp'", "fsdp", "without fold"))


def test_a_replay_refuses_a_folded_trace_by_name() -> None:
    from lib.engine.replay.replay import require_playable

    with pytest.raises(TraceError, match="folded along 'dp'"):
        require_playable(folded_fsdp())


def test_a_picture_says_for_how_many_replicas_it_is() -> None:
    _, folded = both(trained(Plan()), 2, 1, 3, pp=2)
    assert "2 ranks of each of 3 replicas" in draw(folded).title
    assert "2 ranks of each of 3 replicas" in text(folded)


def test_a_folded_trace_comes_back_as_it_was() -> None:
    _, folded = both(trained(Plan(3)), 2, 2, 3, pp=2, tp=2, layer="block")
    for trace in (folded.trace, folded_fsdp()):
        assert trace_from_json(trace_to_json(trace)) == trace


def forged(change: Callable[[Op], Op], name: str) -> str:
    """What the referee says of a folded trace in which the operations of a name are changed."""
    _, folded = both(trained(Plan(3)), 2, 2, 2, tp=2, layer="block")
    trace = folded.trace
    ranks = [tuple(change(op) if op.name == name else op for op in ops) for ops in trace.ranks]
    report = referee(replace(trace, ranks=tuple(ranks)))
    assert report.error is not None
    return str(report.error)


@pytest.mark.parametrize(
    ("name", "change", "says"),
    [
        ("load_weights", lambda op: op._replace(args=op.args[:2]), "every replica contributes the same"),
        ("load_weights", lambda op: op._replace(args=(*op.args[:3], 3)), "gaps"),
        ("load_weights", lambda op: op._replace(args=(*op.args[:3], "1")), "at least 1 apart"),
        ("get_activation", lambda op: op._replace(batches=frozenset((3,))), "another replica"),
        ("allgather", lambda op: op._replace(args=(("dp", 0, 1),)), "goes without saying|some of the ranks"),
        ("allgather", lambda op: op._replace(args=(("tp", 0),)), "some of the ranks"),
        ("scatterreduce", lambda op: op._replace(args=()), "shard"),
        ("scatterreduce", lambda op: op._replace(args=(("dp",),)), "not in the group|some of the ranks"),
    ],
)
def test_a_forged_folded_trace_is_refused(name: str, change: Callable[[Op], Op], says: str) -> None:
    text = forged(change, name)
    assert re.search(says, text), text


def test_shards_of_their_own_exist_in_folded_runs_only() -> None:
    _, folded = both(trained(Plan(3)), 2, 2, 2)
    trace = replace(folded.trace, size=Size(2, 4, 1), setting=Setting())
    assert "only replicas of a folded run" in str(referee(trace).error)


def test_an_impossible_fold_in_a_trace_is_refused() -> None:
    trace = folded_fsdp()
    wrong = replace(trace, size=trace.size._replace(batches=5))
    assert "5 batches" in str(referee(wrong).error)
    with pytest.raises(TraceError, match="5 batches"):
        trace_from_json(trace_to_json(wrong))
    assert "holds 1" in str(referee(replace(trace, setting=replace(trace.setting, fold=""))).error)


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]])
def test_the_order_of_starting_classes_changes_nothing(order: list[int]) -> None:
    setting = Setting(OVERLAP, (("dp", 3), ("pp", 2), ("tp", 2)), layer="block")
    outcome = run(trained(Plan(2, interleaved=True)), 2, 6, 12, order, setting=setting, fold="dp")
    assert outcome.trace == run(trained(Plan(2, interleaved=True)), 2, 6, 12, setting=setting, fold="dp").trace

"""The notation keeps every extended schedule: a trace that is written and read back is the same, as is its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from inspect import isfunction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib import COSTS, Costs, IncompleteError, Model, Setting, Size, Trace, referee, run, trace_from_json, trace_to_json
from lib import pipelines as schedules
from lib.ledger.trace import FORMS
from solutions.checkpoint import checkpoint
from solutions.fsdp_prefetch import fsdp_prefetch
from solutions.host_update import host_update
from solutions.ring_context import ring_context
from solutions.seq_pipeline import seq_pipeline
from solutions.streaming_diloco import streaming_diloco
from solutions.ulysses import ulysses
from solutions.weight_versions import weight_versions
from solutions.zero1 import zero1
from tests.catalog.lessons.families.grid import grid
from tests.catalog.lessons.families.replicas import buckets
from tests.support.examples import examples
from tests.support.schedules import clipping, groups, rooted, shards, tiers

MESH = {"replica": 2, "shard": 2}


async def the_rest(model: Model) -> None:
    """What no schedule above does: tags, parts put together, sums, hand-made values; it trains nothing."""
    weights, states, inputs, _, weight_grads = model.storage()
    weights[0], states[0] = model.load_weights(0)
    if model.rank == 0:
        inputs[0] = model.get_activation([0], 1)
        await model.pass_to(1, inputs[0], tag=3)
    else:
        inputs[0] = await model.receive(0, tag=3)
    weight_grads[0] = model.fake_grad(0, [0], 1) + model.fake_grad(0, [1], 1)
    weights[0] = weights[0].shard(0, 2).combine(weights[0].shard(1, 2))
    del inputs[0]


async def experts_in_groups(model: Model) -> None:
    """A forward of experts that are split among some of the ranks only; it trains nothing."""
    weight, _ = model.load_weights(0, model.index("expert"), 2)
    tokens = await model.dispatch(model.get_activation([model.rank]), 0, group="expert")
    model.activations[0] = await model.collect(model.forward(0, tokens, weight), 1, [model.rank], group="expert")


Play = tuple[Callable[[Model], Any], Size, Setting]


def game(schedule: Callable[[Model], Any], layers: int, batches: int, ranks: int, *setting: Any, **more: Any) -> Play:
    return schedule, Size(layers, batches, ranks), Setting(*setting, **more)


PAIRS = replace(COSTS["parts"], name="pairs", ticks={**COSTS["parts"].ticks, "pair": 20})
BLOCK, EXPERTS = {"layer": "block"}, {"layer": "experts"}
LOCAL = {"steps": 4, "task": "local"}
P = schedules.pipeline


async def heads_in_groups(model: Model) -> None:
    """Tokens for heads and back, in two groups, with a label of its own."""
    tokens = model.get_activation([model.index("dp")], shares=[model.index("cp")])
    heads = await model.heads(tokens, 7, group="cp")
    await model.tokens(heads, 7, group="cp")


GAMES: dict[str, Play] = {
    "replicas": game(grid(2, 1, 2, zero=1), 2, 4, 4, mesh={"dp": 2, "pp": 2}),
    "hybrid_shard": game(groups.hybrid_shard, 2, 4, 4, "islands", MESH),
    "hybrid_shard_keeping_the_last": game(groups.hybrid_shard_keeping_the_last, 2, 4, 4, "classic", MESH),
    "ddp_overlap": game(buckets(2, 1), 3, 2, 2, "buckets"),
    "fsdp_prefetch": game(fsdp_prefetch, 3, 2, 2, "overlap"),
    "gpipe": game(P(schedules.gpipe), 2, 3, 2, "stages"),
    "one_f_one_b": game(P(schedules.one_f_one_b), 2, 3, 2, "stages"),
    "zero_bubble": game(P(schedules.zb_v), 6, 6, 3, "parts"),
    "zb_h1": game(P(schedules.zb_h1), 3, 4, 3, "parts"),
    "zb_h2": game(P(schedules.zb_h2), 3, 4, 3, "parts", steps=2),
    "zero1": game(zero1, 2, 2, 2),
    "checkpoint": game(checkpoint, 6, 1, 1, "long"),
    "tensor_parallel": game(schedules.tensor_parallel, 2, 1, 4, "quarters", **BLOCK),
    "tensor_parallel_record": game(shards.tensor_parallel_record, 2, 1, 2, "twentieths", **BLOCK),
    "sequence_parallel": game(schedules.sequence_parallel, 2, 1, 4, "long_quarters", **BLOCK),
    "local_sgd": game(shards.local_sgd(2), 2, 2, 2, "slow", **LOCAL),
    "data_parallel_steps": game(shards.data_parallel_steps, 2, 2, 2, "slow", steps=2),
    "expert_parallel": game(shards.expert_parallel, 2, 4, 2, "experts", **EXPERTS),
    "experts_in_turn": game(shards.experts_in_turn, 2, 4, 2, "experts", **EXPERTS),
    "offload": game(tiers.offload([1, 2]), 4, 1, 1, "copies"),
    "stream_inference": game(tiers.stream_inference, 3, 2, 1, "streams", task="infer"),
    "stream_inference_in_turn": game(tiers.stream_inference_in_turn, 3, 2, 1, "streams", task="infer"),
    "experts_in_groups": game(experts_in_groups, 1, 4, 4, "experts", {"data": 2, "expert": 2}, **EXPERTS),
    "pairs": game(P(schedules.dualpipev), 4, 4, 2, PAIRS),
    "host_update": game(host_update, 2, 2, 1, "host_updates", steps=3, lag=1),
    "moved": game(tiers.moved, 1, 2, 1, tiers.TWO_TIERS),
    "two_versions": game(weight_versions, 2, 2, 2, "stages", steps=3, lag=1),
    "streaming_diloco": game(
        streaming_diloco, 2, 2, 2, "outer_steps", steps=4, task="outer", outer=2, late=1, mix=Fraction(1, 4)
    ),
    "seq_pipeline": game(seq_pipeline, 2, 2, 2, "sequences", layer="attention", shares=4, steps=1),
    "ring_context": game(ring_context, 2, 1, 2, "grouped", layer="attention", shares=4),
    "ulysses": game(ulysses, 2, 1, 2, "context", layer="attention", shares=4),
    "heads_in_groups": game(heads_in_groups, 1, 2, 4, "context", {"dp": 2, "cp": 2}, layer="attention", shares=2),
    "clipped_pipeline": game(clipping.pipeline, 2, 2, 2, clip=True),
    "clipped_on_the_host": game(clipping.on_the_host, 1, 2, 1, "host_updates", clip=True),
    "owned": game(rooted.owned, 2, 2, 2, rooted.COSTS_WITH_ROOTS, steps=2),
    "the_rest": game(the_rest, 1, 2, 2, steps=2),
}
TRACES: dict[str, Trace] = {}


def trace_of_game(name: str) -> Trace:
    schedule, size, setting = GAMES[name]
    if name not in TRACES:
        TRACES[name] = run(schedule, *size, setting=setting).trace
    return TRACES[name]


def comes_back(trace: Trace) -> None:
    again = trace_from_json(trace_to_json(trace))
    assert again == trace
    assert trace_to_json(again) == trace_to_json(trace)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", GAMES)
def test_a_trace_comes_back_with_its_report(name: str) -> None:
    trace = trace_of_game(name)
    comes_back(trace)
    report = referee(trace)
    trains = name not in ("the_rest", "experts_in_groups", "heads_in_groups")
    assert (report.error is None) == trains
    assert trains or isinstance(report.error, IncompleteError)
    assert repr(referee(trace_from_json(trace_to_json(trace)))) == repr(report)


def test_every_schedule_that_the_tests_share_is_here() -> None:
    theirs = {
        name
        for module in (groups, shards, tiers)
        for name, function in vars(module).items()
        if isfunction(function) and function.__module__ == module.__name__ and not name.startswith("_")
    }
    assert theirs - {"pipeline"} <= set(GAMES)


def test_every_operation_and_every_optional_argument_is_here() -> None:
    ops = [op for name in GAMES for rank in trace_of_game(name).ranks for op in rank]
    assert set(FORMS) - {op.name for op in ops} == {"given"}, "test_trace.py has values of other runs"
    for name, form in FORMS.items():
        if form.optional:
            assert any(op.args[len(form.args) :] for op in ops if op.name == name), name


PRICES = st.dictionaries(st.sampled_from(sorted(COSTS["experts"].ticks)), st.integers(0, 10**9))


@examples(40)
@given(
    st.sampled_from(sorted(GAMES)),
    st.sampled_from([1, 8, 10, 20, 40, 1000]),
    PRICES,
    st.fractions(0, 900, max_denominator=10**6),
    st.integers(0, 64),
)
def test_a_trace_with_any_cost_record_comes_back(
    name: str, unit: int, prices: dict[str, int], beta: Fraction, islands: int
) -> None:
    """The costs are whatever a player writes, not those that the run had: the notation keeps what it is given."""
    trace = trace_of_game(name)
    more: dict[str, Any] = {"beta": {"allreduce": beta}, "islands": islands, "calls": prices, "ticks_between": prices}
    own: Costs = replace(trace.costs, name="any", unit=unit, **more)
    comes_back(replace(trace, setting=replace(trace.setting, costs=own)))

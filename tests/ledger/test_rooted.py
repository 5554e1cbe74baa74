"""Broadcasts and reduces: what is refused, how long they take, and what they hold and send."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from lib import Model, Setting, Size, referee, run
from lib.engine.replay.replay import replay
from lib.ledger.costs import CLASSIC
from lib.pipelines.bounds import time_bound
from tests.screens.texts import approved
from tests.support import finished
from tests.support.refusals import Refused
from tests.support.schedules.rooted import COSTS_WITH_ROOTS, clipped, owned, shared_head

OVERLAPPED = replace(COSTS_WITH_ROOTS, name="overlapped", overlap=True)
BY_SIZE = replace(
    OVERLAPPED,
    name="sizes",
    alpha={"broadcast": 3, "reduce": 2},
    beta=dict.fromkeys(("broadcast", "reduce"), Fraction(1, 2**16)),
)
RUNS: dict[str, tuple[Callable[[Model], Any], tuple[int, int, int], Setting]] = {
    "owned": (owned, (3, 3, 3), Setting(COSTS_WITH_ROOTS, steps=2)),
    "overlapped": (owned, (2, 4, 4), Setting(OVERLAPPED)),
    "by_size": (owned, (2, 3, 3), Setting(BY_SIZE)),
    "shared_head": (shared_head, (2, 4, 3), Setting(COSTS_WITH_ROOTS)),
    "clipped": (clipped, (3, 2, 3), Setting(COSTS_WITH_ROOTS, clip=True)),
}


def played(name: str) -> Any:
    schedule, size, setting = RUNS[name]
    return finished(schedule, *size, setting=setting).trace


# --- What is refused ---


async def wrong_giver(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0], 0, source=1 - model.rank)


async def no_giver(model: Model) -> None:
    await model.broadcast(None, 0)


async def no_part(model: Model) -> None:
    await model.reduce(None, 0)


async def outside(model: Model) -> None:
    if model.rank:
        await model.broadcast(model.load_weights(0)[0], 0, group=[1, 2])


async def no_rank(model: Model) -> None:
    await model.reduce(model.fake_grad(0, ()), 0, to="all")  # type: ignore[arg-type]


async def other_sources(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0], 0, source=model.rank)


async def other_layers(model: Model) -> None:
    await model.broadcast(model.load_weights(0)[0] if model.rank == 0 else None, model.rank)


async def other_calls(model: Model) -> None:
    grad = model.fake_grad(0, ())
    await (model.reduce(grad, 0) if model.rank else model.allreduce(grad, 0))


async def parked(model: Model) -> None:
    await model.broadcast(model.load_weights(0, tier="host")[0], 0, source=model.rank)


async def number(model: Model) -> None:
    await model.broadcast(7, 0, source=model.rank)


async def of_a_weight(model: Model) -> None:
    await model.reduce(model.load_weights(0)[0], 0)


REFUSED: dict[Callable[[Model], Any], Refused] = {
    wrong_giver: Refused("value not from root", rank=0, root=1),
    no_giver: Refused("no value given", rank=0, name="broadcast"),
    no_part: Refused("no value given", rank=0, name="reduce"),
    outside: Refused("root outside group", root=0, group="1, 2"),
    no_rank: Refused("no whole number", thing="to", got="'all'"),
    other_sources: Refused(
        "other calls",
        first="rank 0 calls broadcast(layer=0, source=0)",
        other="rank 1 calls broadcast(layer=0, source=1)",
    ),
    other_layers: Refused(
        "other calls",
        first="rank 0 calls broadcast(layer=0, source=0)",
        other="rank 1 calls broadcast(layer=1, source=0)",
    ),
    other_calls: Refused(
        "other calls", first="rank 0 calls allreduce(layer=0)", other="rank 1 calls reduce(layer=0, to=0)"
    ),
    parked: Refused("parked value sent"),
    number: Refused("broadcast of no value", value="int 7"),
    of_a_weight: Refused("wrong kind for use", use="the value to reduce", kind="a weight gradient"),
}


@pytest.mark.parametrize("costs", [COSTS_WITH_ROOTS, OVERLAPPED])
@pytest.mark.parametrize("wrong", REFUSED)
def test_what_cannot_meet_is_refused_in_words(wrong: Callable[[Model], Any], costs: Any) -> None:
    costs = replace(costs, tiers=Setting("copies").costs.tiers)
    setting = Setting(costs, mesh={"dp": 3})
    REFUSED[wrong].require(run(wrong, 2, 3, 3, setting=setting).error)


def test_without_a_price_there_is_none() -> None:
    Refused("no price", operation="broadcast", costs="classic").require(run(no_giver, 1, 1, 2).error)


async def brought_to_another_call(model: Model) -> None:
    handle = model.broadcast(model.fake_grad(0, ()) if model.rank == 0 else None, 0)
    await model.allreduce(handle, 0)


def test_the_pending_result_of_a_broadcast_goes_to_no_other_call() -> None:
    expected = Refused("result still pending")
    expected.require(run(brought_to_another_call, 1, 2, 2, setting=Setting(OVERLAPPED)).error)

    async def in_turn(model: Model) -> None:
        grad = await model.broadcast(model.fake_grad(0, ()) if model.rank == 0 else None, 0)
        await model.allreduce(grad, 0)

    trace = run(in_turn, 1, 2, 2, setting=Setting(OVERLAPPED)).trace
    ranks = []
    for ops in trace.ranks:
        (at,) = [
            i
            for i, op in enumerate(ops)
            if op.name == "await" and op.args == (ops.index(next(o for o in ops if o.name == "broadcast")),)
        ]
        ranks.append((*ops[:at], *ops[at + 1 :]))
    expected.require(referee(replace(trace, ranks=tuple(ranks))).error)


# --- What it takes ---


def test_the_time_is_from_when_the_last_rank_joins() -> None:
    trace = played("owned")
    report = referee(trace)
    # 3 forwards and 3 backwards; a reduce (1), an update (5), a broadcast (2) for each of 3 layers; twice
    assert report.makespan == 2 * (3 + 3 + 3 * 0.8)
    approved("rooted", "the time is from when the last rank joins", report.family)


def test_by_size_a_chain_has_a_hop_less_than_ranks_and_one_value() -> None:
    trace = played("by_size")
    spans = {op.name: op.end - op.start for op in trace.ranks[0]}
    assert spans["broadcast"] == 2 + 2 * 3 + CLASSIC.weight // 2**16
    assert spans["reduce"] == 1 + 2 * 2 + CLASSIC.weight // 2**16


def test_all_ranks_but_one_send_the_whole() -> None:
    report = referee(played("overlapped"))  # layers 0 and 1, of ranks 0 and 1 of 4
    sent = [rank.bytes_sent // 4 for rank in report.ranks]
    # A reduce to rank 0 starts at rank 1 and a broadcast of rank 0 ends at rank 3; one place further for rank 1.
    assert sent == [w * CLASSIC.weight for w in (0 + 1 + 1 + 0, 1 + 1 + 0 + 1, 1 + 1 + 1 + 1, 1 + 0 + 1 + 1)]
    assert sum(sent) == 4 * 3 * CLASSIC.weight


def test_it_holds_what_it_gives_until_the_call_and_what_it_gets_from_then_on() -> None:
    async def schedule(model: Model) -> None:
        weight = model.load_weights(0)[0] if model.rank == 0 else None
        model.weights[0] = await model.broadcast(weight, 0)
        await model.reduce(model.fake_grad(0, ()), 0, to=1)
        await model.reduce(model.fake_grad(0, ()), 0, to=1)

    report = referee(run(schedule, 1, 2, 2, setting=Setting(COSTS_WITH_ROOTS)).trace)
    assert [[m // CLASSIC.weight for m in rank.memory] for rank in report.ranks] == [[1, 2, 2, 1], [0, 2, 2, 1]]


# --- Lower bounds ---


async def summed_in_two(model: Model) -> None:
    """Tensor parallelism in which a reduce and a broadcast stand for each all-reduce."""

    async def total(part: Any, layer: int) -> Any:
        return await model.broadcast(await model.reduce(part, layer), layer)

    inputs = [model.get_activation([0])]
    held = [model.load_weights(layer, model.rank, model.RANKS) for layer in range(model.LAYERS)]
    for layer, (weight, _) in enumerate(held):
        inputs.append(await total(model.forward(layer, inputs[-1], weight), layer + 1))
    grad = model.loss(inputs.pop())
    for layer in reversed(range(model.LAYERS)):
        own, part = model.backward(layer, inputs.pop(), grad, held[layer][0])
        if layer:
            grad = await total(part, layer - 1)
        model.set_final_weight(layer, model.update(layer, own, *held[layer])[0])


def test_the_bound_knows_that_a_reduce_and_a_broadcast_sum() -> None:
    dear = {**COSTS_WITH_ROOTS.ticks, "allreduce": 90, "scatterreduce": 90, "allgather": 90, "pass_to": 90}
    setting = Setting(replace(COSTS_WITH_ROOTS, ticks=dear), layer="block")
    trace = run(summed_in_two, 4, 1, 4, setting=setting).trace
    report = referee(trace)
    assert report.error is None, report.error
    assert report.family == "tensor parallelism"
    assert replay(trace, small=True).passed
    # 8 quarters of a product (0.3), 7 sums (0.3), and 3 updates (0.5) before the last
    assert time_bound(Size(4, 1, 4), setting).least <= report.timesteps == 6

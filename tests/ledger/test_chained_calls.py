"""Chains: a call that is given the handle of another runs after it. Rows, awaits, refusals and forged traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from lib import COSTS, Model, Op, RuleError, Setting, Trace, referee, run, trace_to_json
from lib.engine.replay.replay import replay
from lib.ledger.costs import Tier
from tests.support import finished, refusal
from tests.support.refusals import Refusals, Refused, edited, nth, with_columns
from tests.support.step_costs import STEP_COSTS
from tests.support.timing import retimed

MESH = {"dp": 2, "tp": 2}
GROUPS = Setting(STEP_COSTS["overlap"], mesh=MESH)
STREAMS = Setting(replace(STEP_COSTS["overlap"], name="a lane for each group", lanes="group"), mesh=MESH)
HOST = Setting(replace(COSTS["copies"], name="small", length=256))


async def hybrid(model: Model) -> None:
    """A gradient is scattered in tp, the shard summed in dp, and the updated shard gathered in tp: one chain."""
    place = model.index("tp")
    weight, state = model.load_weights(0)
    part, part_state = weight.shard(place, 2), state.shard(place, 2)
    inp = model.get_activation([model.rank])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    scattered = model.scatterreduce(grad, 0, group="tp")
    summed = model.allreduce(scattered, 0, group="dp")
    model.forward(0, inp, weight)
    new, _ = model.update(0, await summed, part, part_state)
    await scattered
    model.set_final_weight(0, new)


async def through_the_host(model: Model) -> None:
    """A weight's shard is fetched, gathered, and the whole parked again: three lanes, one chain."""
    parked, _ = model.load_weights(0, model.rank, 2, tier="host")
    fetched = model.fetch(parked)
    gathered = model.allgather(fetched, 0)
    whole = model.offload(gathered)
    weight = await gathered
    await whole
    await fetched
    model.set_output(model.forward(0, model.get_activation([model.rank]), weight))


async def there_and_back(model: Model) -> None:
    """Tokens go to their experts and back and out again, each call behind the one before."""
    out = model.dispatch(model.get_activation([model.rank]), 0)
    back = model.collect(out, 0, [model.rank])
    again = model.dispatch(back, 0)
    weight, state = model.load_weights(0, model.rank, 2)
    tokens = await again
    done = await model.collect(model.forward(0, tokens, weight), 1, [model.rank])
    grad = await model.dispatch(model.loss(done), 0)
    new, _ = model.backward(0, tokens, grad, weight)
    await out
    await back
    model.set_final_weight(0, model.update(0, new, weight, state)[0])


CHAINS: dict[str, tuple[Any, tuple[int, int, int], Setting]] = {
    "groups": (hybrid, (1, 4, 4), GROUPS),
    "groups, a lane each": (hybrid, (1, 4, 4), STREAMS),
    "tiers": (through_the_host, (1, 2, 2), replace(HOST, task="infer")),
    "experts": (there_and_back, (1, 2, 2), Setting("experts", layer="experts")),
}


def trace_of(name: str) -> Trace:
    schedule, size, setting = CHAINS[name]
    return finished(schedule, *size, setting=setting).trace


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_is_right_and_the_same_for_every_order_of_starting_ranks(name: str) -> None:
    schedule, size, setting = CHAINS[name]
    trace = trace_of(name)
    assert referee(trace).error is None
    if name != "tiers":  # the plain lines of `retimed` know no copies
        assert retimed(trace) == trace
    for order in permutations(range(size[2])):
        assert trace_to_json(run(schedule, *size, order, setting=setting).trace) == trace_to_json(trace)


@pytest.mark.parametrize("name", CHAINS)
def test_each_call_of_a_chain_starts_when_the_one_before_has_ended(name: str) -> None:
    trace = trace_of(name)
    for ops in trace.ranks:
        maker = {number: op for op in ops if op.name != "await" for number in op.outputs}
        awaited = {op.args[0]: i for i, op in enumerate(ops) if op.name == "await"}
        links = [
            (maker[number], op)
            for i, op in enumerate(ops)
            if i in awaited
            for number in op.inputs
            if ops.index(maker[number]) in awaited and i < awaited[ops.index(maker[number])]
        ]
        assert links
        assert all(before.end <= after.start for before, after in links)


def test_a_chain_on_real_tensors_gives_the_weights_of_one_device() -> None:
    for name in ("groups", "groups, a lane each", "experts"):
        assert replay(trace_of(name), "inprocess", True).passed, name


def test_an_awaited_handle_can_still_be_brought_and_one_handle_to_two_calls() -> None:
    async def schedule(model: Model) -> None:
        first = model.allreduce(model.fake_grad(0, []), 0)
        left, right = model.allreduce(first, 0), model.allreduce(first, 0)
        assert await first == await left == await right
        assert await model.allreduce(first, 0) == model.fake_grad(0, [])

    outcome = finished(schedule, 1, 2, 2, setting=Setting(STEP_COSTS["overlap"]))
    assert [(op.start, op.end) for op in outcome.trace.events(0)] == [(0, 5), (5, 10), (10, 15), (15, 20)]
    Refused("no final weight").require(referee(outcome.trace).error)


# --- Refusals ---

refused = Refusals(GROUPS)


def zero(model: Model) -> Any:
    return model.fake_grad(0, [])


@refused(Refused("never awaited", place="the end", call="scatterreduce(layer=0) in the group of ranks 0, 1"))
async def only_the_last_is_awaited(model: Model) -> None:
    scattered = model.scatterreduce(zero(model), 0, group="tp")
    await model.allreduce(scattered, 0, group="dp")


@refused(
    Refused(
        "wrong kind for use", kind="a weight gradient", value="the weight of layer 0, unsharded (all 4 shards), step 0"
    )
)
async def what_does_not_fit(model: Model) -> None:
    gathered = model.allgather(model.load_weights(0, model.rank, 4)[0], 0)
    await model.scatterreduce(gathered, 0, group="tp")
    await gathered


@refused(Refused("complete sum"), setting=Setting(STEP_COSTS["overlap"], layer="block"))
async def a_sum_of_a_sum(model: Model) -> None:
    weight = model.load_weights(0, model.rank, 4)[0]
    summed = model.allreduce(model.forward(0, model.get_activation([0]), weight), 1)
    await model.allreduce(summed, 1)
    await summed


@refused(
    Refused(
        "nobody can move",
        waits={
            0: "await allreduce(layer=0) in the group of ranks 0, 1",
            1: "await allreduce(layer=0) in the group of ranks 1, 3",
            2: "await allreduce(layer=0) in the group of ranks 0, 2",
            3: "await allreduce(layer=0) in the group of ranks 2, 3",
        },
        of={0: (0,), 1: (1,), 2: (2,), 3: (3,)},
        cycle=[(0, 0)],
    ),
    setting=STREAMS,
)
async def chains_in_a_cycle(model: Model) -> None:
    first, second = ("dp", "tp") if model.rank in (0, 3) else ("tp", "dp")
    one = model.allreduce(zero(model), 0, group=first)
    await model.allreduce(one, 0, group=second)
    await one


@refused(Refused("cannot send"))
async def a_message_of_a_handle(model: Model) -> None:
    await model.pass_to((model.rank + 1) % 4, model.allreduce(zero(model), 0))


@refused(Refused("parked already"), setting=HOST)
async def what_is_parked_is_parked_again(model: Model) -> None:
    parked = model.offload(model.get_activation([0]))
    await model.offload(parked)
    await parked


@refused(
    Refused("wrong kind for use", kind="a parked value", value="the input activation of layer 0, batch 0 of 4"),
    setting=replace(HOST, layer="block"),
)
async def what_is_gathered_is_fetched(model: Model) -> None:
    gathered = model.allgather(model.get_activation([0]).shard(model.rank, 4), 0)
    await model.fetch(gathered)
    await gathered


@pytest.mark.parametrize("name", refused)
def test_a_chain_that_cannot_be_is_refused(name: str) -> None:
    schedule, setting, expected = refused[name]
    expected.require(refusal(schedule, 1, 4, 4, setting))


def test_more_than_fits_on_the_host_is_refused_at_the_end() -> None:
    """What a chained copy makes is known late: the call is let through, and the referee counts."""
    costs = replace(HOST.costs, tiers={"host": Tier(10, 10, 262_144)})

    def parks(times: int) -> Trace:
        async def schedule(model: Model) -> None:
            gathered = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)
            handles = [model.offload(gathered) for _ in range(times)]
            for key, handle in enumerate(handles):
                model.parked[key] = await handle
            model.set_output(model.forward(0, model.get_activation([model.rank]), await gathered))

        return finished(schedule, 1, 2, 2, setting=Setting(costs, task="infer")).trace

    assert referee(parks(1)).error is None
    Refused("tier full", memory=524_288, tier="host", capacity=262_144).require(referee(parks(2)).error)


# --- Forged traces ---


def without_the_last_await(ops: list[Op]) -> list[Op]:
    del ops[nth(ops, "await", -1)]
    return ops


def with_what_the_first_brought(ops: list[Op]) -> list[Op]:
    return with_columns("allreduce", inputs=ops[nth(ops, "scatterreduce")].inputs)(ops)


def with_its_own_result(ops: list[Op]) -> list[Op]:
    return with_columns("allreduce", inputs=ops[nth(ops, "allreduce")].outputs)(ops)


def the_second_first(ops: list[Op]) -> list[Op]:
    i, k = nth(ops, "scatterreduce"), nth(ops, "allreduce")
    ops[i], ops[k] = ops[k], ops[i]
    return ops


def used_in_between(ops: list[Op]) -> list[Op]:
    i = nth(ops, "allreduce")
    store = Op("store", ops[i - 2].end, ops[i - 2].end, inputs=ops[i - 1].outputs, args=("grad_weights", 0))
    at_await = nth(ops, "forward", 1)
    return [*ops[:at_await], store, *ops[at_await:]]


@pytest.mark.parametrize(
    ("edit", "expected"),
    [
        (without_the_last_await, Refused("never awaited")),
        (with_what_the_first_brought, Refused("other end", inputs=[7], call="allreduce(layer=0)")),
        (with_its_own_result, Refused("value not made")),
        (the_second_first, Refused("value not made")),
        (used_in_between, Refused("still pending")),
        (with_columns("allreduce", start=20, end=25), Refused("other ticks")),
        (with_columns("allreduce", layer=1), Refused("other layer", layer=0)),
        (with_columns("allreduce", outputs=()), Refused("other message", count=1)),
        (with_columns("await", 0, inputs=()), Refused("other end")),
        (with_columns("await", 1, end=99), Refused("other end")),
    ],
)
def test_a_forged_chain_is_refused(edit: Any, expected: Refused) -> None:
    expected.require(referee(edited(trace_of("groups"), edit)).error)


def test_a_chain_may_be_awaited_in_any_order() -> None:
    """The figures are those of the last await."""

    def swapped(ops: list[Op]) -> list[Op]:
        one, two = nth(ops, "await", 0), nth(ops, "await", 1)
        early = ops[one + 1 : two]
        return [*ops[:one], ops[two], ops[one], *early, *ops[two + 1 :]]

    report, before = referee(retimed(edited(trace_of("groups"), swapped))), referee(trace_of("groups"))
    assert report.error is None
    assert report.makespan == before.makespan


def test_weights_that_were_loaded_to_the_host_can_be_trained() -> None:
    """The notes on memory follow them through the fetch and its await."""

    async def schedule(model: Model) -> None:
        parked, parked_state = model.load_weights(0, tier="host")
        weight = await model.fetch(parked)
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        model.weights[0], model.opt_states[0] = model.update(0, grad, weight, await model.fetch(parked_state))
        model.set_final_weight(0, model.weights[0])

    for overlap in (False, True):
        setting = Setting(replace(HOST.costs, overlap=overlap))
        report = referee(run(schedule, 1, 1, 1, setting=setting).trace)
        assert report.error is None
        assert not any(note.about == "reload" for note in report.notes)


def test_a_parked_value_of_another_rank_is_refused() -> None:
    shelf: dict[int, Any] = {}

    async def thief(model: Model) -> None:
        shelf[model.rank] = await model.offload(model.get_activation([model.rank]))
        if model.rank:
            await model.fetch(shelf[0])

    for overlap in (False, True):
        error = run(thief, 1, 2, 2, setting=Setting(replace(HOST.costs, overlap=overlap))).error
        assert isinstance(error, RuleError)
        Refused("value of another rank", place="rank 1", rank=0).require(error)


def test_a_group_in_another_order_is_the_same_group() -> None:
    async def schedule(model: Model) -> None:
        pair = model.axis("tp")
        await model.allreduce(zero(model), 0, group=pair if model.rank % 2 else pair[::-1])

    traces = [
        run(schedule, 1, 4, 4, setting=replace(GROUPS, costs=COSTS[name])).trace for name in ("classic", "overlap")
    ]
    for trace in traces:
        assert [op.args for op in trace.events(0)] == [((0, 1),)]
        assert [op.args for op in trace.events(3)] == [((2, 3),)]


@pytest.mark.parametrize("total", [3, 5])
def test_a_cut_that_does_not_divide_is_refused(total: int) -> None:
    """Half of a weight does not hold the third of it that the rank asks for."""

    def schedule(model: Model) -> None:
        model.load_weights(0, model.rank % 2, 2)[0].shard(model.rank // 2, total)

    expected = Refused("shard not held", place="rank 1", value="weight of layer 0, shard 1 of 2, step 0", i=0, n=total)
    expected.require(refusal(schedule, 1, 4, 4, GROUPS))

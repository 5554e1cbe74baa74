"""What the extended games refuse: at once and with the way out; and in a forged trace, by the referee."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from lib import (
    COSTS,
    Costs,
    Model,
    PuzzleError,
    RuleError,
    Setting,
    Trace,
    WeightGrad,
    referee,
    run,
    trace_from_json,
    trace_to_json,
)
from lib.ledger.algebra import Copy
from lib.ledger.costs import CLASSIC, Tier
from lib.ledger.trace import Op
from lib.ledger.values import Activation, Parked, Weight
from lib.pipelines import pipeline, sequence_parallel, tensor_parallel, zb_h1
from tests.support import finished, refusal
from tests.support.refusals import Refused, edited, nth
from tests.support.schedules import shards, tiers

PRICES = {**CLASSIC.ticks, **dict.fromkeys(("backward_input", "backward_weight", "dispatch", "collect"), 5)}
ROOM = 4 * CLASSIC.activation
ALL = Costs("everything", ticks=MappingProxyType(PRICES), tiers=MappingProxyType({"host": Tier(3, 3, ROOM)}))

DENSE, STEPS = Setting(ALL), Setting(ALL, steps=2)
BLOCK, EXPERTS = Setting(ALL, layer="block"), Setting(ALL, layer="experts")
LOCAL, INFER = Setting(ALL, steps=2, task="local"), Setting(ALL, task="infer")


def step(model: Model, batches: Any, at: int = 0, weight: Any = None, state: Any = None) -> Any:
    """One step of the first layer on some batches: the updated weight and state."""
    if weight is None:
        weight, state = model.load_weights(0)
    inp = model.get_activation(batches, at)
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    return model.update(0, grad, weight, state)


def part_of_a_sum(model: Model) -> Any:
    return model.forward(0, model.get_activation([0]), model.load_weights(0, 0, 4)[0])


async def both_bring(model: Model, name: str, value: Any, *args: Any) -> Any:
    return await getattr(model, name)(value, value.layer, *args)


def halves_in_the_classic_game(model: Model) -> None:
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    model.backward_input(0, inp, model.loss(model.forward(0, inp, weight)), weight)


def half_of_another_layer(model: Model) -> None:
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    grad = model.loss(model.forward(0, inp, weight))
    model.backward_weight(0, inp, model.backward_input(0, inp, grad, weight))


def half_with_a_weight(model: Model) -> None:
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    model.backward_weight(0, inp, model.loss(model.forward(0, inp, weight)), weight)


def half_without_a_weight(model: Model) -> None:
    weight, _ = model.load_weights(0)
    inp = model.get_activation([0])
    model.backward_weight(0, inp, model.loss(model.forward(0, inp, weight)))


def weight_of_the_next_step(model: Model) -> None:
    weight, _ = step(model, [0, 1])
    model.forward(0, model.get_activation([0], 0), weight)


def gradient_of_the_step_before(model: Model) -> None:
    weight, state = model.load_weights(0)
    inp = model.get_activation([0, 1])
    grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
    weight, state = model.update(0, grad, weight, state)
    model.update(0, grad, weight, state)


def batches_of_two_steps(model: Model) -> None:
    weight, state = model.load_weights(0)
    new, _ = step(model, [0, 1], 0, weight, state)
    out = model.loss(model.forward(0, model.get_activation([0], 1), new))
    model.backward(0, model.get_activation([0], 0), out, weight)


async def parts_twice(model: Model) -> None:
    weight = model.load_weights(0, 1, 2)[0]
    await both_bring(model, "allreduce", model.forward(0, model.get_activation([0]), weight))


async def a_part_missing(model: Model) -> None:
    weight = model.load_weights(0, model.rank, 4)[0]
    await both_bring(model, "allreduce", model.forward(0, model.get_activation([0]), weight))


async def wrong_expert(model: Model) -> None:
    inp = await model.dispatch(model.get_activation([model.rank]), 0)
    model.forward(0, inp, model.load_weights(0, 1 - model.rank, 2)[0])


async def dispatch_the_same(model: Model) -> None:
    await model.dispatch(model.get_activation([0]), 0)


async def collect_twice(model: Model) -> None:
    inp = await model.dispatch(model.get_activation([model.rank]), 0)
    await model.collect(inp, 0, [0])


async def collect_too_few(model: Model) -> None:
    inp = await model.dispatch(model.get_activation([model.rank]), 0)
    await model.collect(inp, 0, [0] if model.rank == 0 else [])


async def other_batches(model: Model) -> None:
    weight, state = step(model, [model.rank])
    step(model, [1 - model.rank], 1, weight, state)


async def mixed_replicas(model: Model) -> None:
    """Layer 1 of the replica, layer 0 of all."""
    mine = [model.rank]
    (w0, s0), (w1, s1) = model.load_weights(0), model.load_weights(1)
    inp = model.get_activation(mine)
    mid = model.forward(0, inp, w0)
    grad1, grad = model.backward(1, mid, model.loss(model.forward(1, mid, w1)), w1)
    grad0, _ = model.backward(0, inp, grad, w0)
    w1, s1 = model.update(1, grad1, w1, s1)
    w0, _ = model.update(0, await model.allreduce(grad0, 0), w0, s0)
    model.forward(1, model.forward(0, model.get_activation(mine, 1), w0), w1)


async def parted_at_different_steps(model: Model) -> None:
    """Rank 0 trains alone from the beginning, rank 1 from the step after one with all batches."""
    alone = step(model, [0] if model.rank == 0 else [0, 1])
    weight, _ = step(model, [model.rank], 1, *alone)
    await model.allreduce(weight, 0)


async def average_of_one(model: Model) -> None:
    weight, _ = step(model, [0])
    await model.allreduce(weight, 0)


async def state_that_missed_an_average(model: Model) -> None:
    """After two steps, a state of the replica that trained on alone, for weights that were averaged after each step."""
    mine = [model.rank]
    alone = step(model, mine)
    _, state_alone = step(model, mine, 1, *alone)
    averaged = await model.allreduce(alone[0], 0)
    weight, state = step(model, mine, 1, averaged, alone[1])
    again = await model.allreduce(weight, 0)
    step(model, mine, 2, again, state)
    step(model, mine, 2, again, state_alone)


def gradient_of_no_step(model: Model) -> None:
    """The player has made it: the game has two steps, and every gradient that it returns is of one of them."""
    weight, state = step(model, [0, 1], 1, *step(model, [0, 1]))
    model.update(0, WeightGrad(0, 1, [0, 1], 2, step=2), weight, state)


def input_of_no_step(model: Model) -> None:
    weight, _ = step(model, [0, 1], 1, *step(model, [0, 1]))
    model.forward(0, Activation(0, 1, [0, 1], 2, step=2), weight)


def final_of_a_replica(model: Model) -> None:
    weight, state = step(model, [0])
    model.set_final_weight(0, step(model, [0], 1, weight, state)[0])


async def too_much_on_the_host(model: Model) -> None:
    for batch in range(5):
        model.parked[batch] = await model.offload(model.get_activation([batch % 2]))


async def too_much_beside_the_dictionary(model: Model) -> None:
    kept = [await model.offload(model.get_activation([0])) for _ in range(5)]
    for parked in kept:
        await model.fetch(parked)
    model.set_output(model.forward(0, model.get_activation([0, 1]), model.load_weights(0)[0]))


async def no_such_tier(model: Model) -> None:
    await model.offload(model.get_activation([0]), to="disk")


async def park_twice(model: Model) -> None:
    await model.offload(await model.offload(model.get_activation([0])))


async def send_a_parked_value(model: Model) -> None:
    parked = await model.offload(model.get_activation([0]))
    await (model.pass_to(1, parked) if model.rank == 0 else model.receive(0))


def a_parked_value_among_the_weights(model: Model) -> None:
    model.weights[0], _ = model.load_weights(0, tier="host")  # type: ignore[assignment]  # that is the mistake


def fetched_without_await(model: Model) -> None:
    model.fetch(model.load_weights(0, tier="host")[0])
    model.get_activation([0])


REFUSED: list[tuple[Callable[[Model], Any], Setting, Refused]] = [
    (halves_in_the_classic_game, Setting(), Refused("no price", operation="backward_input", costs="classic")),
    (
        half_of_another_layer,
        DENSE,
        Refused(
            "other gradient",
            place="backward_weight(layer=0)",
            grad="activation gradient of the model's input, which nothing needs, batch 0 of 2",
            maker="loss",
        ),
    ),
    (half_with_a_weight, DENSE, Refused("weight not needed")),
    (half_without_a_weight, BLOCK, Refused("wrong kind for use")),
    (weight_of_the_next_step, STEPS, Refused("steps differ", step=1, inp_step=0)),
    (gradient_of_the_step_before, STEPS, Refused("gradient of other weight", step=0, weight_step=1, steps=2)),
    (
        lambda model: model.fake_grad(0, [], 0) + model.fake_grad(0, [], 1),
        STEPS,
        Refused("values differ", verb="sum", differ="step"),
    ),
    (batches_of_two_steps, STEPS, Refused("gradient of another step", step=0, grad_step=1)),
    (lambda model: model.set_final_weight(0, step(model, [0, 1])[0]), STEPS, Refused("weight not final")),
    (lambda model: model.get_activation([0], 2), STEPS, Refused("does not exist", thing="step", number=2)),
    (lambda model: model.get_activation([0], 1), DENSE, Refused("does not exist", thing="step", number=1)),
    (lambda model: model.loss(part_of_a_sum(model)), BLOCK, Refused("parts not added", parts="part 0 of 4 of a sum")),
    (lambda model: model.get_activation([0]).shard(0, 2), DENSE, Refused("shares not allowed")),
    (part_of_a_sum, DENSE, Refused("weight not gathered", shards="shard 0 of 4")),
    (
        lambda m: m.forward(0, m.get_activation([0]).shard(1, 4), m.load_weights(0)[0]),
        BLOCK,
        Refused("tokens not gathered", tokens="share 1 of 4 of the tokens"),
    ),
    (parts_twice, BLOCK, Refused("in both", thing="part", number=1, both="both rank 0 and rank 1")),
    (a_part_missing, BLOCK, Refused("missing parts", missing="parts 2, 3", of=4)),
    (lambda model: both_bring(model, "allreduce", model.get_activation([0])), BLOCK, Refused("complete sum")),
    (
        lambda model: both_bring(model, "allgather", model.get_activation([0]).shard(1, 2)),
        BLOCK,
        Refused("in both", thing="share", number=1, both="both rank 0 and rank 1"),
    ),
    (wrong_expert, EXPERTS, Refused("tokens of another expert", tokens="expert 0 of 2", weight="expert 1 of 2")),
    (dispatch_the_same, BLOCK, Refused("other kind of layers", call="dispatch", kind="experts", layers="block")),
    (dispatch_the_same, EXPERTS, Refused("in both", thing="batch", number=0, both="both rank 0 and rank 1")),
    (collect_twice, EXPERTS, Refused("in both", thing="batch", number=0, both="both rank 0 and rank 1")),
    (collect_too_few, EXPERTS, Refused("other batches asked back", batches="batches 0, 1 of 2", asked="batch 0")),
    (
        lambda model: model.forward(0, model.get_activation([0]).shard(0, 4), model.load_weights(0, 0, 4)[0]),
        EXPERTS,
        Refused("part of an expert", tokens="share 0 of 4 of the tokens", ranks=2),
    ),
    (lambda model: step(model, [0]), DENSE, Refused("batches missing", batches="batch 0 of 2", missing="batch 1")),
    (
        other_batches,
        LOCAL,
        Refused("replica with other batches", batches="batch 0", since=0, grad_batches="batch 1 of 2"),
    ),
    (mixed_replicas, LOCAL, Refused("replicas mixed")),
    (parted_at_different_steps, LOCAL, Refused("replicas of different weights", place="rank 0", other="rank 1")),
    (average_of_one, LOCAL, Refused("in both", thing="batch", number=0, both="both rank 0 and rank 1")),
    (lambda model: model.allreduce(model.load_weights(0)[0], 0), LOCAL, Refused("no replica", place="rank 0")),
    (
        state_that_missed_an_average,
        replace(LOCAL, steps=3),
        Refused("state of another replica", place="update(layer=0)"),
    ),
    (
        gradient_of_no_step,
        STEPS,
        Refused("gradient of other weight", place="update(layer=0)", step=2, weight_step=2, steps=2),
    ),
    (input_of_no_step, STEPS, Refused("steps differ", place="forward(layer=0)", step=2, inp_step=2)),
    (
        final_of_a_replica,
        LOCAL,
        Refused(
            "final replica",
            weight="weight of layer 0, unsharded, step 2, of the replica trained since step 0 with batch 0",
        ),
    ),
    (too_much_on_the_host, DENSE, Refused("tier full", tier="host", there=524288, capacity=524288)),
    (too_much_beside_the_dictionary, INFER, Refused("tier full", memory=655360, tier="host", capacity=524288)),
    (no_such_tier, DENSE, Refused("no such tier", tier="disk", known="host")),
    (no_such_tier, Setting(), Refused("no price", operation="offload", costs="classic")),
    (park_twice, DENSE, Refused("parked already")),
    (
        lambda model: model.fetch(model.get_activation([0])),
        DENSE,
        Refused("wrong kind for use", kind="a parked value", value="the input activation of layer 0, batch 0 of 2"),
    ),
    (send_a_parked_value, DENSE, Refused("parked value sent")),
    (a_parked_value_among_the_weights, DENSE, Refused("wrong dictionary", dictionary="weights")),
    (
        lambda model: model.forward(0, model.get_activation([0]), model.load_weights(0, tier="host")[0]),
        DENSE,
        Refused("wrong kind", name="weight", kind="a weight"),
    ),
    (fetched_without_await, DENSE, Refused("not awaited", call="fetch()", name="fetch")),
    (lambda model: step(model, [0, 1]), INFER, Refused("update while inferring")),
    (lambda model: model.set_output(model.get_activation([0])), INFER, Refused("output too early")),
    (lambda model: model.set_output(model.get_activation([0])), DENSE, Refused("output while training")),
    (
        lambda model: model.set_output(model.forward(0, model.get_activation([0]), model.load_weights(0)[0])),
        INFER,
        Refused("no output", missing="batch 1"),
    ),
]


@pytest.mark.parametrize(("schedule", "setting", "expected"), REFUSED, ids=lambda part: getattr(part, "__name__", ""))
def test_is_refused_with_these_facts(schedule: Any, setting: Setting, expected: Refused) -> None:
    layers = 2 if schedule is mixed_replicas else 1
    expected.require(refusal(schedule, layers, 2, 2, setting))


def test_the_fifth_argument_of_the_original_update_is_taken() -> None:
    def schedule(model: Model) -> None:
        weight, state = model.load_weights(0)
        inp = model.get_activation([0])
        grad, _ = model.backward(0, inp, model.loss(model.forward(0, inp, weight)), weight)
        model.set_final_weight(0, model.update(0, grad, weight, state, 3)[0])

    assert refusal(schedule, 1, 1, 1) is None


# --- Forged traces ---


def traced(schedule: Any, size: tuple[int, int, int], setting: Setting) -> Trace:
    outcome = finished(schedule, *size, setting=setting)
    assert referee(outcome.trace).error is None
    return outcome.trace


def changed(trace: Trace, name: str, change: Callable[[Op], Op], which: int = 0) -> Trace:
    """The trace with one operation of the first rank changed: the `which`-th of its name."""

    def edit(ops: list[Op]) -> list[Op]:
        at = nth(ops, name, which)
        return [*ops[:at], change(ops[at]), *ops[at + 1 :]]

    return edited(trace, edit, 0)


HALVES = traced(pipeline(zb_h1), (2, 4, 2), Setting(COSTS["parts"], steps=2))
PARTS = traced(tensor_parallel, (2, 1, 2), BLOCK)
TOKENS = traced(sequence_parallel, (2, 1, 2), BLOCK)
ROUTED = traced(shards.experts_in_turn, (2, 4, 2), EXPERTS)
ALONE = traced(shards.local_sgd(2), (1, 2, 2), Setting(ALL, steps=2, task="local"))
STREAM = traced(
    tiers.stream_inference_in_turn, (2, 1, 1), Setting(replace(ALL, tiers={"host": Tier(3, 3)}), task="infer")
)

FORGED = {
    "a half in a game without halves": replace(HALVES, setting=Setting(steps=2)),
    "a half in no time": changed(HALVES, "backward_weight", lambda op: op._replace(end=op.start)),
    "a half as a whole": changed(HALVES, "backward_input", lambda op: op._replace(name="backward")),
    "a half of other batches": changed(HALVES, "backward_weight", lambda op: op._replace(batches=frozenset((3,)))),
    "data of another step": changed(HALVES, "get_activation", lambda op: op._replace(args=(1,))),
    "data of no step": changed(HALVES, "get_activation", lambda op: op._replace(args=("1",))),
    "a step that has its default": changed(HALVES, "get_activation", lambda op: op._replace(args=(0,))),
    "one step of a game of two": replace(HALVES, setting=Setting(COSTS["parts"])),
    "a third step": replace(HALVES, setting=Setting(COSTS["parts"], steps=3)),
    "parts where layers are whole": replace(PARTS, setting=DENSE),
    "all of the time for a part": changed(PARTS, "forward", lambda op: op._replace(end=op.start + 10)),
    "another shard": changed(PARTS, "load_weights", lambda op: op._replace(args=(1, 2))),
    "tokens of another rank": changed(TOKENS, "scatterreduce", lambda op: op._replace(name="allreduce")),
    "experts in dense layers": replace(ROUTED, setting=DENSE),
    "batches of another rank": changed(ROUTED, "collect", lambda op: op._replace(batches=frozenset((1, 3)))),
    "batches that do not exist": changed(ROUTED, "collect", lambda op: op._replace(batches=frozenset((0, 9)))),
    "batches of a dispatch": changed(ROUTED, "dispatch", lambda op: op._replace(batches=frozenset((0,)))),
    "replicas in another task": replace(ALONE, setting=Setting(ALL, steps=2)),
    "a copy passed off as agreed": changed(
        ALONE, "set_final_weight", lambda op: op._replace(inputs=(ALONE.ranks[0][-3].inputs[0],))
    ),
    "no tier": replace(STREAM, setting=Setting(task="infer")),
    "another tier": changed(STREAM, "load_weights", lambda op: op._replace(args=(*op.args[:2], "disk"))),
    "a fetch in no time": changed(STREAM, "fetch", lambda op: op._replace(end=op.start)),
    "a fetch of what is no parked value": changed(STREAM, "fetch", lambda op: op._replace(inputs=(4,)), 1),
    "a parked value among the weights": changed(STREAM, "store", lambda op: op._replace(args=("weights", 0))),
    "an output of the first layer": changed(STREAM, "set_output", lambda op: op._replace(inputs=(4,))),
    "inference passed off as training": replace(STREAM, setting=replace(STREAM.setting, task="train")),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_a_forged_trace_is_refused(forgery: str) -> None:
    assert isinstance(referee(FORGED[forgery]).error, PuzzleError)


def test_a_value_of_an_extended_game_is_read_back_as_it_was() -> None:
    values = [
        Weight(0, 1, 2, copy=Copy(1, frozenset((0,)), 4, ((0, 1, ((0, 1), (2, 3))),))),
        WeightGrad(0, 1, frozenset((0,)), 2, step=1),
        Activation(0, 1, frozenset((0,)), 2, 1, frozenset((1,)), 2, frozenset((0,)), 4),
    ]
    for value in values:

        def use(model: Model, value: Any = value) -> None:
            store = {Weight: model.weights, WeightGrad: model.grad_weights, Activation: model.activations}
            store[type(value)][0] = value  # type: ignore[index]  # each in the dictionary of its kind

        trace = run(use, 1, 2, 1, setting=Setting(ALL, steps=3)).trace

        (given, _) = trace_from_json(trace_to_json(trace)).ranks[0]
        assert given.args == (value,)


BAD_COPIES = [
    3,
    (0, [0]),
    (0, [9], 4, []),
    (-1, [0], 4, []),
    (0, [0], 4, 1),
    (0, [0], 4, [[0, 1]]),
    (0, [0], 4, [[0, 1, 2]]),
]


@pytest.mark.parametrize("copy", BAD_COPIES)
def test_a_copy_that_cannot_be_is_refused(copy: Any) -> None:
    with pytest.raises(RuleError):
        Weight(0, 1, 0, copy=copy)


def test_a_parked_value_of_another_dist_is_refused() -> None:
    seen: list[Any] = []

    async def other(model: Model) -> None:
        seen.append(await model.offload(model.get_activation([0])))

    run(other, 1, 1, 1, setting=DENSE)

    async def thief(model: Model) -> None:
        await model.fetch(seen[0])

    Refused("value of another Dist").require(run(thief, 1, 1, 1, setting=DENSE).error)
    assert seen[0].memory() == 0
    assert isinstance(seen[0], Parked)

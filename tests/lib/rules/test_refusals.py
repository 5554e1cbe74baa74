"""A schedule is judged for what it computes: each mistake is refused, in words that help.

Every case is a schedule with one mistake, the reason of its refusal, and what the message must say: which rank and
operation, what was given, and the next move.
"""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from lib import COSTS, Activation, Dist, Model, PuzzleError, Setting, Weight, WeightGrad
from tests.support import refusal

CASES: dict[str, tuple[Any, dict[str, int], str, list[str]]] = {}


def refused(reason: str, *says: str, **size: int) -> Any:
    """Registers a schedule that must be refused for `reason`, with a message that says all of `says`."""

    def register(schedule: Any) -> Any:
        CASES[schedule.__name__] = (schedule, size, reason, list(says))
        return schedule

    return register


def gradients(model: Model, batches: Any) -> list[Any]:
    """Weight gradients of both layers for some batches, computed honestly."""
    weights = [model.load_weights(layer)[0] for layer in range(2)]
    inputs = [model.get_activation(batches)]
    for layer in range(2):
        inputs.append(model.forward(layer, inputs[layer], weights[layer]))
    grad = model.loss(inputs[2])
    grads = []
    for layer in (1, 0):
        weight_grad, grad = model.backward(layer, inputs[layer], grad, weights[layer])
        grads.insert(0, weight_grad)
    return grads


# --- Sums -----------------------------------------------------------------------------------------


@refused("rule", "rank 0", "'+'", "batch 0", "each batch once")
def batch_summed_twice(model: Model) -> None:
    grad = gradients(model, [0])[0]
    grad + grad


@refused("rule", "rank 0", "allreduce(layer=0)", "batch 1 is in both rank 0 and rank 1", ranks=2)
async def batch_contributed_by_two_ranks(model: Model) -> None:
    await model.allreduce(gradients(model, [1])[0], 0)


@refused("rule", "allreduce(layer=0)", "ranks 0, 1", "every batch", "reduce a gradient once", ranks=2)
async def reduced_twice(model: Model) -> None:
    once = await model.allreduce(gradients(model, [model.rank])[0], 0)
    await model.allreduce(once, 0)


@refused("rule", "'+'", "differ in layer", "layer 0", "layer 1")
def layers_summed(model: Model) -> None:
    grads = gradients(model, [0])
    grads[0] + gradients(model, [1])[1]


@refused("rule", "'+'", "differ in shard count")
def shard_counts_summed(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2) + gradients(model, [1])[0].shard(0, 4)


@refused("rule", "'+'", "differ in shards", "shard 0 of 2", "shard 1 of 2")
def different_shards_summed(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2) + gradients(model, [1])[0].shard(1, 2)


@refused("rule", "scatterreduce(layer=0)", "a full gradient", "shard 0 of 2", "use allreduce", ranks=2)
async def shards_scattered(model: Model) -> None:
    await model.scatterreduce(gradients(model, [model.rank])[0].shard(0, 2), 0)


@refused("rule", "allreduce(layer=0)", "must be a weight gradient", "the weight of layer 0", ranks=2)
async def weight_reduced(model: Model) -> None:
    await model.allreduce(model.load_weights(0)[0], 0)


# --- Gathers --------------------------------------------------------------------------------------


@refused("rule", "allgather(layer=0)", "shard 0 is in both rank 0 and rank 1", "each shard once", ranks=2)
async def same_shard_gathered_twice(model: Model) -> None:
    await model.allgather(model.load_weights(0, 0, 2)[0], 0)


@refused("mismatch", "rank 0 calls allgather(layer=0)", "rank 1 calls allgather(layer=1)", "same layers", ranks=2)
async def layers_gathered(model: Model) -> None:
    await model.allgather(model.load_weights(model.rank, model.rank, 2)[0], 0)


@refused("rule", "allgather(layer=0)", "differ in shard count", ranks=2)
async def shard_counts_gathered(model: Model) -> None:
    await model.allgather(model.load_weights(0, model.rank, 2 + model.rank)[0], 0)


@refused("rule", "combine", "differ in step", "step 0", "step 1")
def steps_combined(model: Model) -> None:
    weight, opt_state = model.load_weights(0, 0, 2)
    new, _ = model.update(0, gradients(model, [0, 1])[0], weight, opt_state)
    new.combine(model.load_weights(0, 1, 2)[0])


@refused("rule", "combine", "shard 1 is in both")
def same_shard_combined(model: Model) -> None:
    weight, _ = model.load_weights(0, 1, 4)
    weight.combine(weight)


@refused("rule", "combine", "differ in batches", "batch 0 of 2", "batch 1 of 2")
def gradients_of_different_batches_combined(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2).combine(gradients(model, [1])[0].shard(1, 2))


@refused("rule", "allgather(layer=1)", "have shards to gather", "input activation", ranks=2)
async def activation_gathered(model: Model) -> None:
    await model.allgather(gradients(model, [0]) and model.get_activation([0]), 1)


@refused("rule", "shard 1 of 4", "not hold all of shard 0 of 2", "gather it first")
def shard_of_what_is_not_here(model: Model) -> None:
    model.load_weights(0, 1, 4)[0].shard(0, 2)


# --- Updates --------------------------------------------------------------------------------------


@refused("rule", "rank 0, t=4, update(layer=0)", "covers only batch 0 of 2", "first add batch 1", "all-reduce")
def update_without_every_batch(model: Model) -> None:
    model.update(0, gradients(model, [0])[0], *model.load_weights(0))


@refused("rule", "update(layer=0)", "gradient is shard 0 of 1024", "weight is shard 0 of 4", "covers all")
def small_gradient_shard_for_a_large_weight_shard(model: Model) -> None:
    grad = gradients(model, [0, 1])[0].shard(0, 1024)
    model.update(0, grad, *model.load_weights(0, 0, 4))


@refused("rule", "update(layer=0)", "state is shard 0 of 2", "weight is unsharded", "not the gathered weight", ranks=2)
async def gathered_weight_updated_with_a_shard_of_state(model: Model) -> None:
    shard, opt_state = model.load_weights(0, model.rank, 2)
    whole = await model.allgather(shard, 0)
    grad = await model.allreduce(gradients(model, [model.rank])[0], 0)
    model.update(0, grad, whole, opt_state)


@refused("rule", "update(layer=0)", "already updated (step 1)", "once")
def updated_twice(model: Model) -> None:
    grad = gradients(model, [0, 1])[0]
    model.update(0, grad, *model.update(0, grad, *model.load_weights(0)))


@refused("rule", "update(layer=0)", "optimizer state is at step 1", "weight is at step 0", "belongs to this weight")
def old_weight_with_a_new_state(model: Model) -> None:
    grad = gradients(model, [0, 1])[0]
    weight, opt_state = model.load_weights(0)
    _, newer = model.update(0, grad, weight, opt_state)
    model.update(0, grad, weight, newer)


@refused("rule", "update(layer=0)", "weight gradient of layer 1", "a value of layer 0")
def gradient_of_another_layer(model: Model) -> None:
    model.update(0, gradients(model, [0, 1])[1], *model.load_weights(0))


@refused("rule", "update(layer=0)", "wrong order", "weight is the optimizer state", "opt_state is the weight")
def weight_and_state_exchanged(model: Model) -> None:
    weight, opt_state = model.load_weights(0)
    model.update(0, gradients(model, [0, 1])[0], opt_state, weight)  # type: ignore[arg-type]


# --- Forward and backward -------------------------------------------------------------------------


@refused("rule", "rank 0, t=0, forward(layer=0)", "shard 2 of 4", "allgather it first")
def forward_with_a_shard(model: Model) -> None:
    model.forward(0, model.get_activation([0]), model.load_weights(0, 2, 4)[0])


@refused("rule", "forward(layer=1)", "weight of layer 0", "pass the weight of layer 1")
def weight_of_another_layer(model: Model) -> None:
    model.forward(1, model.get_activation([0]), model.load_weights(0)[0])


@refused("rule", "forward(layer=1)", "input activation of layer 0", "pass the input activation of layer 1")
def input_of_another_layer(model: Model) -> None:
    model.forward(1, model.get_activation([0]), model.load_weights(1)[0])


@refused("rule", "forward(layer=0)", "step 1", "before the update")
def forward_with_an_updated_weight(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.forward(0, model.get_activation([0]), new)


@refused("rule", "loss()", "input activation of layer 0", "forward first")
def loss_too_early(model: Model) -> None:
    model.loss(model.get_activation([0]))


@refused("rule", "backward(layer=0)", "for backward(1)", "the gradient that backward(1, ...) returned")
def backward_skips_a_layer(model: Model) -> None:
    weights = [model.load_weights(layer)[0] for layer in range(2)]
    inp = model.get_activation([0])
    grad = model.loss(model.forward(1, model.forward(0, inp, weights[0]), weights[1]))
    model.backward(0, inp, grad, weights[0])


@refused("rule", "backward(layer=0)", "batch 0 of 2", "batches 0, 1 of 2", "the same batches", layers=1)
def batches_of_activation_and_gradient_differ(model: Model) -> None:
    weight, _ = model.load_weights(0)
    grad = model.loss(model.forward(0, model.get_activation([0, 1]), weight))
    model.backward(0, model.get_activation([0]), grad, weight)


@refused("rule", "forward(layer=0)", "wrong order", "inp is the weight of layer 0", "forward(layer, inp, weight)")
def arguments_exchanged(model: Model) -> None:
    model.forward(0, model.load_weights(0)[0], model.get_activation([0]))  # type: ignore[arg-type]


@refused("rule", "backward(layer=1)", "wrong order", "inp is the activation gradient", "grad is the input activation")
def arguments_of_backward_exchanged(model: Model) -> None:
    weight, _ = model.load_weights(1)
    inp = model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    model.backward(1, model.loss(model.forward(1, inp, weight)), inp, weight)  # type: ignore[arg-type]


@refused(
    "rule", "grad_activations[1] = ...", "got the weight gradient", "grad_weights", "returns the weight gradient first"
)
def results_of_backward_exchanged_and_stored(model: Model) -> None:
    model.grad_activations[1] = gradients(model, [0])[1]  # type: ignore[assignment]


@refused("rule", "update(layer=0)", "got the activation gradient for backward(1)", "returns the weight gradient first")
def results_of_backward_exchanged_and_used(model: Model) -> None:
    weight, opt_state = model.load_weights(0)
    inp = model.get_activation([0])
    grad = model.loss(model.forward(1, model.forward(0, inp, weight), model.load_weights(1)[0]))
    model.update(0, grad, weight, opt_state)  # type: ignore[arg-type]


@refused("rule", "opt_states[0] = ...", "got the weight of layer 0", "return the weight first")
def results_of_load_weights_exchanged(model: Model) -> None:
    model.opt_states[0], _ = model.load_weights(0)  # type: ignore[assignment]


@refused("rule", "allgather(layer=...)", "the value comes first: allgather(value, layer)", ranks=2)
async def layer_and_value_exchanged(model: Model) -> None:
    await model.allgather(0, model.load_weights(0, model.rank, 2)[0])  # type: ignore[type-var]


@refused("rule", "forward(layer=0)", "a tuple of 2", "unpack it first")
def tuple_used_as_a_value(model: Model) -> None:
    model.forward(0, model.get_activation([0]), model.load_weights(0))  # type: ignore[arg-type]


# --- What does not come from an operation of this rank ---------------------------------------------


@refused("rule", "forward(layer=1)", "input activation of layer 1", "made by hand", "own operations")
def hand_made_activation(model: Model) -> None:
    model.forward(1, Activation(1, 2, {0}, 2), model.load_weights(1)[0])  # type: ignore[arg-type]


@refused("rule", "set_final_weight(layer=0)", "weight of layer 0", "made by hand")
def hand_made_weight(model: Model) -> None:
    model.set_final_weight(0, Weight(0, 2, 1))


@refused("rule", "allreduce(layer=0)", "weight gradient of layer 0", "made by hand", ranks=2)
async def hand_made_gradient(model: Model) -> None:
    await model.allreduce(WeightGrad(0, 2, {model.rank}, 2), 0)  # type: ignore[arg-type]


@refused("rule", "update(layer=0)", "by a model of another Dist")
def value_of_a_private_model(model: Model) -> None:
    mine = Model(0, Dist(1), layers=2, batches=2)
    model.update(0, gradients(mine, [0, 1])[0], *model.load_weights(0))


@refused("rule", "fake_grad(layer=0)", "batch 1", "never computed", "run forward and backward")
def fake_gradient(model: Model) -> None:
    model.update(0, gradients(model, [0])[0] + model.fake_grad(0, [1]), *model.load_weights(0))


SHELF: dict[str, Any] = {}


@refused("rule", "rank 1", "forward(layer=0)", "belongs to rank 0", "only by communication", ranks=2)
async def value_taken_through_a_global(model: Model) -> None:
    if model.rank == 0:
        SHELF["input"] = model.get_activation([0])
        await model.pass_to(1, "look on the shelf")
    else:
        await model.receive()
        model.forward(0, SHELF["input"], model.load_weights(0)[0])


@refused("rule", "rank 1", "weights[0] = ...", "belongs to rank 0", ranks=2)
async def value_stored_through_a_global(model: Model) -> None:
    if model.rank == 0:
        SHELF["weight"], _ = model.load_weights(0)
        await model.pass_to(1, None)
    else:
        await model.receive()
        model.weights[0] = SHELF["weight"]


@refused("rule", "rank 0, t=0, forward(layer=1)", "input activation of layer 0")
def relabelled_field(model: Model) -> None:
    inp = model.get_activation([0])
    object.__setattr__(inp, "layer", 1)
    model.forward(1, inp, model.load_weights(1)[0])


@refused("rule", "update(layer=0)", "batch 0 of 2")
def relabelled_batches(model: Model) -> None:
    grad = gradients(model, [0])[0]
    object.__setattr__(grad, "batches", frozenset({0, 1}))
    model.update(0, grad, *model.load_weights(0))


@refused("rule", "forward(layer=1)", "made by hand")
def relabelled_copy(model: Model) -> None:
    moved = dataclasses.replace(model.get_activation([0]), layer=1)
    model.forward(1, moved, model.load_weights(1)[0])


# --- Final weights --------------------------------------------------------------------------------


@refused("rule", "set_final_weight(layer=1)", "weight of layer 0", "pass the weight of layer 1")
def final_weight_of_the_wrong_layer(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.set_final_weight(1, new)


@refused("rule", "set_final_weight(layer=0)", "never updated", "the weight that update returned")
def final_weight_never_updated(model: Model) -> None:
    model.set_final_weight(0, model.load_weights(0)[0])


@refused("incomplete", "no rank set a final weight for layer 1", "set_final_weight(1")
def final_weight_missing(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.set_final_weight(0, new)


@refused("incomplete", "the final weight of layer 0 lacks shards 1, 3 of 4")
def final_shards_missing(model: Model) -> None:
    for layer, grad in enumerate(gradients(model, [0, 1])):
        whole, state = model.load_weights(layer)
        new, _ = model.update(layer, grad, whole, state)
        model.set_final_weight(layer, new.shard(0, 4).combine(new.shard(2, 4)) if layer == 0 else new)


# --- What does not exist --------------------------------------------------------------------------


@refused("rule", "forward(layer=2)", "layer 2 does not exist", "layers 0 to 1")
def layer_too_high(model: Model) -> None:
    model.forward(2, model.get_activation([0]), model.load_weights(0)[0])


@refused("rule", "load_weights(layer=-1)", "layer -1 does not exist")
def layer_negative(model: Model) -> None:
    model.load_weights(-1)


@refused("rule", "load_weights", "layer must be a whole number", "'first'")
def layer_no_number(model: Model) -> None:
    model.load_weights("first")  # type: ignore[arg-type]


@refused("rule", "get_activation", "batch 2 does not exist", "batches 0 to 1")
def batch_too_high(model: Model) -> None:
    model.get_activation([2])


@refused("rule", "get_activation", "batch -1 does not exist")
def batch_negative(model: Model) -> None:
    model.get_activation([-1])


@refused("rule", "get_activation", "must be a list of numbers", "[0]", "got 0")
def batch_without_a_list(model: Model) -> None:
    model.get_activation(0)


@refused("rule", "get_activation", "no batches", "at least one")
def no_batches(model: Model) -> None:
    model.get_activation([])


@refused("rule", "load_weights", "shard 4 does not exist", "shards 0 to 3")
def shard_too_high(model: Model) -> None:
    model.load_weights(0, 4, 4)


@refused("rule", "load_weights(layer=0)", "shard 1 does not exist", "total is 1", "total=")
def shard_without_a_total(model: Model) -> None:
    model.load_weights(0, 1)


@refused("rule", "load_weights(layer=...)", "whole number", "got the weight of layer 0, unsharded")
def value_for_a_number(model: Model) -> None:
    model.load_weights(model.load_weights(0)[0])  # type: ignore[arg-type]


@refused("rule", "get_activation", "batch must be a whole number", "got the weight of layer 0, unsharded")
def value_for_a_batch(model: Model) -> None:
    model.get_activation([model.load_weights(0)[0]])


@refused("rule", "weights[...]", "nothing is stored", "store a value first")
def value_for_a_key(model: Model) -> None:
    model.weights[model.load_weights(0)[0]]


@refused("rule", "load_weights", "shard -1 does not exist")
def shard_negative(model: Model) -> None:
    model.load_weights(0, -1, 4)


@refused("rule", "load_weights", "total must be at least 1")
def no_shards(model: Model) -> None:
    model.load_weights(0, 0, 0)


@refused("rule", "rank 0", "pass_to(1)", "rank 1 does not exist", "only rank 0 exists")
async def rank_too_high(model: Model) -> None:
    await model.pass_to(1, "hello")


@refused("rule", "receive(-1)", "rank -1 does not exist")
async def rank_negative(model: Model) -> None:
    await model.receive(-1)


@refused("rule", "rank 1, t=0, pass_to(1)", "cannot send to itself", "in a dictionary", ranks=2)
async def message_to_oneself(model: Model) -> None:
    await model.pass_to(1, "remember the milk")


@refused("rule", "pass_to", "the rank comes first: pass_to(rank, value)")
async def rank_and_value_exchanged(model: Model) -> None:
    await model.pass_to(model.get_activation([0]), 0)  # type: ignore[arg-type]


@refused("deadlock", "receive(1) on line", "a message from rank 2 to rank 0", ranks=3)
async def received_from_the_wrong_neighbour(model: Model) -> None:
    await model.pass_to((model.rank + 1) % 3, "hello")
    await model.receive((model.rank + 1) % 3)


@refused("deadlock", "rank 1, t=0, receive(2)", "rank 2 has returned", ranks=3)
async def the_place_is_of_the_rank_that_waits_for_one_that_has_ended(model: Model) -> None:
    if model.rank < 2:
        await model.receive(model.rank + 1)


# --- Forgotten await, unpacking, replaced dictionaries -------------------------------------------------


@refused("rule", "load_weights(layer=0)", "pass_to(1) on line", "without await", "'await model.pass_to", ranks=2)
async def await_forgotten_on_pass_to(model: Model) -> None:
    if model.rank == 0:
        model.pass_to(1, "hello")
        model.load_weights(0)


@refused("rule", "the end", "allreduce(layer=0) on line", "without await", ranks=2)
async def await_forgotten_on_the_last_call(model: Model) -> None:
    model.allreduce(gradients(model, [model.rank])[0], 0)


@refused("rule", "weights[0] = ...", "not awaited", "write 'await'", ranks=2)
async def await_forgotten_and_stored(model: Model) -> None:
    model.weights[0] = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)  # type: ignore[assignment]


@refused("rule", "forward(layer=0)", "allgather(layer=0) on line", "without await", ranks=2)
async def await_forgotten_and_used(model: Model) -> None:
    whole: Any = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)
    model.forward(0, model.load_weights and Activation(0, 2, {0}, 2), whole)  # type: ignore[arg-type]


@refused("rule", "pass_to(1)", "not awaited", ranks=2)
async def await_forgotten_and_sent(model: Model) -> None:
    async def later() -> None: ...

    coroutine = later()
    try:
        await model.pass_to(1, coroutine)
    finally:
        coroutine.close()


@refused("rule", "weights[0] = ...", "a tuple of 2", "unpack it first")
def tuple_stored(model: Model) -> None:
    model.weights[0] = model.load_weights(0)  # type: ignore[assignment]


@refused(
    "rule",
    "weights[0] = ...",
    "weights holds weights only",
    "optimizer state of layer 0",
    "store it in opt_states",
)
def stored_in_the_wrong_dictionary(model: Model) -> None:
    _, model.weights[0] = model.load_weights(0)  # type: ignore[assignment]


@refused("rule", "grad_weights[0] = ...", "holds weight gradients only", "NoneType None")
def nothing_stored(model: Model) -> None:
    model.grad_weights[0] = None  # type: ignore[assignment]


@refused("rule", "a key must be a number, a string or a tuple")
def strange_key(model: Model) -> None:
    model.weights[object()], _ = model.load_weights(0)


@refused("rule", "activations[3]", "nothing is stored", "activations has the keys 0", "store a value first")
def missing_key(model: Model) -> None:
    model.activations[0] = model.get_activation([0])
    model.activations[3]


@refused("rule", "model.weights = ...", "do not replace it")
def dictionary_replaced(model: Model) -> None:
    model.weights = {}  # type: ignore[assignment]


@refused("rule", "model.time = ...", "the runtime sets this")
def clock_set(model: Model) -> None:
    model.time = 0  # type: ignore[misc]


@refused("rule", "model.log = ...", "the runtime sets this")
def log_set(model: Model) -> None:
    model.log = []  # type: ignore[misc]


# --- Names that a model does not have ----------------------------------------------------------------


@refused("rule", "rank 0, t=0, model.all_gather", "no 'all_gather'", "'await model.allgather(v, layer)'")
def another_librarys_name(model: Model) -> None:
    model.all_gather  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("all_reduce", "await model.allreduce("),
        ("AllReduce", "await model.allreduce("),
        ("reduce_scatter", "await model.scatterreduce("),
        ("send", "await model.pass_to(rank, v)"),
        ("isend", "await model.pass_to("),
        ("recv", "await model.receive("),
        ("foward", "model.forward(layer, inp, weight)"),
        ("weight", "model.weights'"),
        ("world_size", "model.RANKS'"),
        ("optimizer_step", "model.update("),
        ("all_to_all", "its calls are allgather, allreduce, backward"),
    ],
)
def test_a_name_that_a_model_does_not_have_suggests_the_one_that_was_meant(written: str, meant: str) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Model(), written)
    assert isinstance(refused.value, PuzzleError)
    assert meant in str(refused.value)


def test_only_names_of_the_own_game_are_suggested() -> None:
    def said(name: str, model: Model) -> str:
        with pytest.raises(AttributeError) as refused:
            getattr(model, name)
        return str(refused.value)

    meshed = Model(0, Dist(1, setting=Setting(COSTS["copies"]), mesh={"dp": 1}))
    assert "'model.backward(" in said("backwards", Model())
    assert "backward_input" not in said("all_to_all", Model())
    assert "axis" not in said("all_to_all", Model())
    assert ", axis, " in said("all_to_all", meshed)
    assert "'await model.offload(v)'" in said("off_load", meshed)
    assert "offload" not in said("off_load", Model())


def test_a_model_can_be_asked_for_a_name_that_it_does_not_have() -> None:
    assert not hasattr(Model(), "all_gather")
    assert not hasattr(Model(), "_ipython_display_")


# --- One assertion for all ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_is_refused_in_words_that_help(name: str) -> None:
    schedule, size, reason, says = CASES[name]
    error = refusal(schedule, **size)
    assert isinstance(error, PuzzleError), f"{name} was not refused: {error!r}"
    assert error.reason == reason
    assert [part for part in says if part not in str(error)] == [], str(error)
    if error.reason == "rule":
        assert str(error).startswith("rank ")
        assert error.line > 0
        assert set(re.findall(r"the end: .* on line (\d+) was called", str(error))) <= {str(error.line)}


def test_a_refused_operation_changes_neither_log_nor_clock_nor_memory() -> None:
    model = Model(layers=2, batches=2)
    model.weights[0], _ = model.load_weights(0)
    model.activations[0] = model.get_activation([0])
    model.activations[1] = model.forward(0, model.activations[0], model.weights[0])
    before = (model.log, model.time, model.memory(), dict(model.activations))
    with pytest.raises(PuzzleError):
        model.forward(0, model.activations[1], model.weights[0])
    with pytest.raises(PuzzleError):
        model.activations[1] = (model.activations[0],)  # type: ignore[assignment]
    with pytest.raises(PuzzleError):
        del model.activations[7]
    assert (model.log, model.time, model.memory(), dict(model.activations)) == before

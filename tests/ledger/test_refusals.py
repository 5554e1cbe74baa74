"""A schedule is judged for what it computes: each mistake is refused, in words that help.

Every case is a schedule with one mistake, the reason of its refusal, and what the message must say: which rank and
operation, what was given, and the next move.
"""

import dataclasses
import re
from typing import Any

import pytest

from lib import COSTS, Activation, Dist, Model, PuzzleError, Setting, Weight, WeightGrad
from tests.support import refusal
from tests.support.refusals import Refused

CASES: dict[str, tuple[Any, dict[str, int], str, Refused]] = {}


def refused(expected: Refused, kind: str = "rule", **size: int) -> Any:
    """Registers a schedule that must be refused: the refusal, and the kind of the verdict."""

    def register(schedule: Any) -> Any:
        CASES[schedule.__name__] = (schedule, size, kind, expected)
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


@refused(Refused("in both", place="rank 0, t=4, '+'", thing="batch", number=0))
def batch_summed_twice(model: Model) -> None:
    grad = gradients(model, [0])[0]
    grad + grad


@refused(
    Refused("in both", place="rank 0, t=4, allreduce(layer=0)", thing="batch", number=1, both="both rank 0 and rank 1"),
    ranks=2,
)
async def batch_contributed_by_two_ranks(model: Model) -> None:
    await model.allreduce(gradients(model, [1])[0], 0)


@refused(Refused("every batch contributed", place="allreduce(layer=0)", ranks="ranks 0, 1"), ranks=2)
async def reduced_twice(model: Model) -> None:
    once = await model.allreduce(gradients(model, [model.rank])[0], 0)
    await model.allreduce(once, 0)


@refused(Refused("values differ", place="'+'", differ="layer"))
def layers_summed(model: Model) -> None:
    grads = gradients(model, [0])
    grads[0] + gradients(model, [1])[1]


@refused(Refused("values differ", differ="shard count"))
def shard_counts_summed(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2) + gradients(model, [1])[0].shard(0, 4)


@refused(Refused("values differ", place="'+'", differ="shards"))
def different_shards_summed(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2) + gradients(model, [1])[0].shard(1, 2)


@refused(Refused("scatter of shards", place="scatterreduce(layer=0)", shards="shard 0 of 2"), ranks=2)
async def shards_scattered(model: Model) -> None:
    await model.scatterreduce(gradients(model, [model.rank])[0].shard(0, 2), 0)


@refused(
    Refused(
        "wrong kind for use",
        place="allreduce(layer=0)",
        kind="a weight gradient",
        value="the weight of layer 0, unsharded, step 0",
    ),
    ranks=2,
)
async def weight_reduced(model: Model) -> None:
    await model.allreduce(model.load_weights(0)[0], 0)


# --- Gathers --------------------------------------------------------------------------------------


@refused(
    Refused("in both", place="allgather(layer=0)", thing="shard", number=0, both="both rank 0 and rank 1"), ranks=2
)
async def same_shard_gathered_twice(model: Model) -> None:
    await model.allgather(model.load_weights(0, 0, 2)[0], 0)


@refused(Refused("values differ", place="allgather(layer=0)", differ="shard count"), ranks=2)
async def shard_counts_gathered(model: Model) -> None:
    await model.allgather(model.load_weights(0, model.rank, 2 + model.rank)[0], 0)


@refused(Refused("values differ", place="combine", differ="step"))
def steps_combined(model: Model) -> None:
    weight, opt_state = model.load_weights(0, 0, 2)
    new, _ = model.update(0, gradients(model, [0, 1])[0], weight, opt_state)
    new.combine(model.load_weights(0, 1, 2)[0])


@refused(Refused("in both", place="combine", thing="shard", number=1))
def same_shard_combined(model: Model) -> None:
    weight, _ = model.load_weights(0, 1, 4)
    weight.combine(weight)


@refused(Refused("values differ", place="combine", differ="batches"))
def gradients_of_different_batches_combined(model: Model) -> None:
    gradients(model, [0])[0].shard(0, 2).combine(gradients(model, [1])[0].shard(1, 2))


@refused(
    Refused("no shards to gather", place="allgather(layer=1)", value="the input activation of layer 0, batch 0 of 2"),
    ranks=2,
)
async def activation_gathered(model: Model) -> None:
    await model.allgather(gradients(model, [0]) and model.get_activation([0]), 1)


@refused(Refused("shard not held", i=0, n=2))
def shard_of_what_is_not_here(model: Model) -> None:
    model.load_weights(0, 1, 4)[0].shard(0, 2)


# --- Updates --------------------------------------------------------------------------------------


@refused(Refused("batches missing", place="rank 0, t=4, update(layer=0)", batches="batch 0 of 2", missing="batch 1"))
def update_without_every_batch(model: Model) -> None:
    model.update(0, gradients(model, [0])[0], *model.load_weights(0))


@refused(
    Refused("gradient of other shards", place="update(layer=0)", shards="shard 0 of 1024", weight_shards="shard 0 of 4")
)
def small_gradient_shard_for_a_large_weight_shard(model: Model) -> None:
    grad = gradients(model, [0, 1])[0].shard(0, 1024)
    model.update(0, grad, *model.load_weights(0, 0, 4))


@refused(Refused("state of other shards", place="update(layer=0)", shards="shard 0 of 2"), ranks=2)
async def gathered_weight_updated_with_a_shard_of_state(model: Model) -> None:
    shard, opt_state = model.load_weights(0, model.rank, 2)
    whole = await model.allgather(shard, 0)
    grad = await model.allreduce(gradients(model, [model.rank])[0], 0)
    model.update(0, grad, whole, opt_state)


@refused(Refused("updated twice", place="update(layer=0)"))
def updated_twice(model: Model) -> None:
    grad = gradients(model, [0, 1])[0]
    model.update(0, grad, *model.update(0, grad, *model.load_weights(0)))


@refused(Refused("state of another step", place="update(layer=0)", step=1, weight_step=0))
def old_weight_with_a_new_state(model: Model) -> None:
    grad = gradients(model, [0, 1])[0]
    weight, opt_state = model.load_weights(0)
    _, newer = model.update(0, grad, weight, opt_state)
    model.update(0, grad, weight, newer)


@refused(
    Refused(
        "other layer",
        place="update(layer=0)",
        value="weight gradient of layer 1, batches 0, 1 of 2, unsharded",
        layer=0,
    )
)
def gradient_of_another_layer(model: Model) -> None:
    model.update(0, gradients(model, [0, 1])[1], *model.load_weights(0))


@refused(Refused("arguments swapped", place="update(layer=0)"))
def weight_and_state_exchanged(model: Model) -> None:
    weight, opt_state = model.load_weights(0)
    model.update(0, gradients(model, [0, 1])[0], opt_state, weight)  # type: ignore[arg-type]


# --- Forward and backward -------------------------------------------------------------------------


@refused(Refused("weight not gathered", place="rank 0, t=0, forward(layer=0)", shards="shard 2 of 4"))
def forward_with_a_shard(model: Model) -> None:
    model.forward(0, model.get_activation([0]), model.load_weights(0, 2, 4)[0])


@refused(Refused("other weight", place="forward(layer=1)", weight="weight of layer 0, unsharded, step 0", layer=1))
def weight_of_another_layer(model: Model) -> None:
    model.forward(1, model.get_activation([0]), model.load_weights(0)[0])


@refused(Refused("other input", place="forward(layer=1)", inp="input activation of layer 0, batch 0 of 2", layer=1))
def input_of_another_layer(model: Model) -> None:
    model.forward(1, model.get_activation([0]), model.load_weights(1)[0])


@refused(Refused("weight already used", place="forward(layer=0)"))
def forward_with_an_updated_weight(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.forward(0, model.get_activation([0]), new)


@refused(Refused("loss too early", place="loss()", inp="input activation of layer 0, batch 0 of 2"))
def loss_too_early(model: Model) -> None:
    model.loss(model.get_activation([0]))


@refused(
    Refused(
        "other gradient",
        place="backward(layer=0)",
        grad="activation gradient for backward(1), batch 0 of 2",
        maker="backward(1, ...)",
    )
)
def backward_skips_a_layer(model: Model) -> None:
    weights = [model.load_weights(layer)[0] for layer in range(2)]
    inp = model.get_activation([0])
    grad = model.loss(model.forward(1, model.forward(0, inp, weights[0]), weights[1]))
    model.backward(0, inp, grad, weights[0])


@refused(
    Refused("batches differ", place="backward(layer=0)", batches="batch 0 of 2", grad_batches="batches 0, 1 of 2"),
    layers=1,
)
def batches_of_activation_and_gradient_differ(model: Model) -> None:
    weight, _ = model.load_weights(0)
    grad = model.loss(model.forward(0, model.get_activation([0, 1]), weight))
    model.backward(0, model.get_activation([0]), grad, weight)


@refused(Refused("arguments swapped", place="forward(layer=0)", call="forward(layer, inp, weight)"))
def arguments_exchanged(model: Model) -> None:
    model.forward(0, model.load_weights(0)[0], model.get_activation([0]))  # type: ignore[arg-type]


@refused(Refused("arguments swapped", place="backward(layer=1)"))
def arguments_of_backward_exchanged(model: Model) -> None:
    weight, _ = model.load_weights(1)
    inp = model.forward(0, model.get_activation([0]), model.load_weights(0)[0])
    model.backward(1, model.loss(model.forward(1, inp, weight)), inp, weight)  # type: ignore[arg-type]


@refused(
    Refused(
        "wrong dictionary",
        place="grad_activations[1] = ...",
        got="the weight gradient of layer 1, batch 0 of 2, unsharded",
    )
)
def results_of_backward_exchanged_and_stored(model: Model) -> None:
    model.grad_activations[1] = gradients(model, [0])[1]  # type: ignore[assignment]


@refused(Refused("wrong kind", place="update(layer=0)", value="the activation gradient for backward(1), batch 0 of 2"))
def results_of_backward_exchanged_and_used(model: Model) -> None:
    weight, opt_state = model.load_weights(0)
    inp = model.get_activation([0])
    grad = model.loss(model.forward(1, model.forward(0, inp, weight), model.load_weights(1)[0]))
    model.update(0, grad, weight, opt_state)  # type: ignore[arg-type]


@refused(Refused("wrong dictionary", place="opt_states[0] = ...", got="the weight of layer 0, unsharded, step 0"))
def results_of_load_weights_exchanged(model: Model) -> None:
    model.opt_states[0], _ = model.load_weights(0)  # type: ignore[assignment]


@refused(Refused("value comes first", place="allgather(layer=...)", name="allgather"), ranks=2)
async def layer_and_value_exchanged(model: Model) -> None:
    await model.allgather(0, model.load_weights(0, model.rank, 2)[0])  # type: ignore[type-var]


@refused(Refused("wrong kind", place="forward(layer=0)"))
def tuple_used_as_a_value(model: Model) -> None:
    model.forward(0, model.get_activation([0]), model.load_weights(0))  # type: ignore[arg-type]


# --- What does not come from an operation of this rank ---------------------------------------------


@refused(Refused("made by hand", place="forward(layer=1)", value="input activation of layer 1, batch 0 of 2"))
def hand_made_activation(model: Model) -> None:
    model.forward(1, Activation(1, 2, {0}, 2), model.load_weights(1)[0])  # type: ignore[arg-type]


@refused(Refused("made by hand", place="set_final_weight(layer=0)", value="weight of layer 0, unsharded, step 1"))
def hand_made_weight(model: Model) -> None:
    model.set_final_weight(0, Weight(0, 2, 1))


@refused(
    Refused("made by hand", place="allreduce(layer=0)", value="weight gradient of layer 0, batch 0 of 2, unsharded"),
    ranks=2,
)
async def hand_made_gradient(model: Model) -> None:
    await model.allreduce(WeightGrad(0, 2, {model.rank}, 2), 0)  # type: ignore[arg-type]


@refused(Refused("made by hand", place="update(layer=0)"))
def value_of_a_private_model(model: Model) -> None:
    mine = Model(0, Dist(1), layers=2, batches=2)
    model.update(0, gradients(mine, [0, 1])[0], *model.load_weights(0))


@refused(Refused("batches never computed", place="fake_grad(layer=0)", batches="batch 1"))
def fake_gradient(model: Model) -> None:
    model.update(0, gradients(model, [0])[0] + model.fake_grad(0, [1]), *model.load_weights(0))


SHELF: dict[str, Any] = {}


@refused(Refused("value of another rank", place="rank 1, t=0.4, forward(layer=0)", rank=0), ranks=2)
async def value_taken_through_a_global(model: Model) -> None:
    if model.rank == 0:
        SHELF["input"] = model.get_activation([0])
        await model.pass_to(1, "look on the shelf")
    else:
        await model.receive()
        model.forward(0, SHELF["input"], model.load_weights(0)[0])


@refused(Refused("value of another rank", place="rank 1, t=0.4, weights[0] = ...", rank=0), ranks=2)
async def value_stored_through_a_global(model: Model) -> None:
    if model.rank == 0:
        SHELF["weight"], _ = model.load_weights(0)
        await model.pass_to(1, None)
    else:
        await model.receive()
        model.weights[0] = SHELF["weight"]


@refused(Refused("other input", place="rank 0, t=0, forward(layer=1)", inp="input activation of layer 0, batch 0 of 2"))
def relabelled_field(model: Model) -> None:
    inp = model.get_activation([0])
    object.__setattr__(inp, "layer", 1)
    model.forward(1, inp, model.load_weights(1)[0])


@refused(Refused("batches missing", place="update(layer=0)", batches="batch 0 of 2"))
def relabelled_batches(model: Model) -> None:
    grad = gradients(model, [0])[0]
    object.__setattr__(grad, "batches", frozenset({0, 1}))
    model.update(0, grad, *model.load_weights(0))


@refused(Refused("made by hand", place="forward(layer=1)"))
def relabelled_copy(model: Model) -> None:
    moved = dataclasses.replace(model.get_activation([0]), layer=1)
    model.forward(1, moved, model.load_weights(1)[0])


# --- Final weights --------------------------------------------------------------------------------


@refused(
    Refused("other weight", place="set_final_weight(layer=1)", weight="weight of layer 0, unsharded, step 1", layer=1)
)
def final_weight_of_the_wrong_layer(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.set_final_weight(1, new)


@refused(Refused("weight not final", place="set_final_weight(layer=0)"))
def final_weight_never_updated(model: Model) -> None:
    model.set_final_weight(0, model.load_weights(0)[0])


@refused(Refused("no final weight", layer=1), kind="incomplete")
def final_weight_missing(model: Model) -> None:
    new, _ = model.update(0, gradients(model, [0, 1])[0], *model.load_weights(0))
    model.set_final_weight(0, new)


@refused(Refused("final shards missing", layer=0, missing="shards 1, 3", total=4), kind="incomplete")
def final_shards_missing(model: Model) -> None:
    for layer, grad in enumerate(gradients(model, [0, 1])):
        whole, state = model.load_weights(layer)
        new, _ = model.update(layer, grad, whole, state)
        model.set_final_weight(layer, new.shard(0, 4).combine(new.shard(2, 4)) if layer == 0 else new)


# --- What does not exist --------------------------------------------------------------------------


@refused(Refused("does not exist", place="forward(layer=2)", thing="layer", number=2, limit=2))
def layer_too_high(model: Model) -> None:
    model.forward(2, model.get_activation([0]), model.load_weights(0)[0])


@refused(Refused("does not exist", place="load_weights(layer=-1)", thing="layer", number=-1))
def layer_negative(model: Model) -> None:
    model.load_weights(-1)


@refused(Refused("no whole number", place="load_weights", thing="layer", got="'first'"))
def layer_no_number(model: Model) -> None:
    model.load_weights("first")  # type: ignore[arg-type]


@refused(Refused("does not exist", place="get_activation", thing="batch", number=2, limit=2))
def batch_too_high(model: Model) -> None:
    model.get_activation([2])


@refused(Refused("does not exist", place="get_activation", thing="batch", number=-1))
def batch_negative(model: Model) -> None:
    model.get_activation([-1])


@refused(Refused("no list", place="get_activation", got="0"))
def batch_without_a_list(model: Model) -> None:
    model.get_activation(0)


@refused(Refused("no batches", place="get_activation"))
def no_batches(model: Model) -> None:
    model.get_activation([])


@refused(Refused("does not exist", place="load_weights", thing="shard", number=4, limit=4))
def shard_too_high(model: Model) -> None:
    model.load_weights(0, 4, 4)


@refused(Refused("shard without total", place="load_weights(layer=0)", part=1))
def shard_without_a_total(model: Model) -> None:
    model.load_weights(0, 1)


@refused(
    Refused(
        "no whole number",
        place="load_weights(layer=...)",
        thing="layer",
        got="the weight of layer 0, unsharded, step 0",
    )
)
def value_for_a_number(model: Model) -> None:
    model.load_weights(model.load_weights(0)[0])  # type: ignore[arg-type]


@refused(
    Refused("no whole number", place="get_activation", thing="batch", got="the weight of layer 0, unsharded, step 0")
)
def value_for_a_batch(model: Model) -> None:
    model.get_activation([model.load_weights(0)[0]])


@refused(Refused("nothing stored", place="weights[...]", advice="store a value under this key first"))
def value_for_a_key(model: Model) -> None:
    model.weights[model.load_weights(0)[0]]


@refused(Refused("does not exist", place="load_weights", thing="shard", number=-1))
def shard_negative(model: Model) -> None:
    model.load_weights(0, -1, 4)


@refused(Refused("too small", place="load_weights", thing="total", least=1))
def no_shards(model: Model) -> None:
    model.load_weights(0, 0, 0)


@refused(Refused("does not exist", place="rank 0, t=0, pass_to(1)", thing="rank", number=1, limit=1))
async def rank_too_high(model: Model) -> None:
    await model.pass_to(1, "hello")


@refused(Refused("does not exist", place="receive(-1)", thing="rank", number=-1))
async def rank_negative(model: Model) -> None:
    await model.receive(-1)


@refused(Refused("sent to itself", place="rank 1, t=0, pass_to(1)"), ranks=2)
async def message_to_oneself(model: Model) -> None:
    await model.pass_to(1, "remember the milk")


@refused(Refused("rank comes first", place="pass_to"))
async def rank_and_value_exchanged(model: Model) -> None:
    await model.pass_to(model.get_activation([0]), 0)  # type: ignore[arg-type]


@refused(Refused("nobody can move"), kind="deadlock", ranks=3)
async def received_from_the_wrong_neighbour(model: Model) -> None:
    await model.pass_to((model.rank + 1) % 3, "hello")
    await model.receive((model.rank + 1) % 3)


@refused(Refused("nobody can move", place="rank 1, t=0, receive(2)"), kind="deadlock", ranks=3)
async def the_place_is_of_the_rank_that_waits_for_one_that_has_ended(model: Model) -> None:
    if model.rank < 2:
        await model.receive(model.rank + 1)


# --- Forgotten await, unpacking, replaced dictionaries -------------------------------------------------


@refused(Refused("not awaited", place="load_weights(layer=0)", call="pass_to(1)", name="pass_to"), ranks=2)
async def await_forgotten_on_pass_to(model: Model) -> None:
    if model.rank == 0:
        model.pass_to(1, "hello")
        model.load_weights(0)


@refused(Refused("not awaited", place="the end", call="allreduce(layer=0)", name="allreduce"), ranks=2)
async def await_forgotten_on_the_last_call(model: Model) -> None:
    model.allreduce(gradients(model, [model.rank])[0], 0)


@refused(Refused("wrong dictionary", place="weights[0] = ..."), ranks=2)
async def await_forgotten_and_stored(model: Model) -> None:
    model.weights[0] = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)  # type: ignore[assignment]


@refused(Refused("not awaited", place="forward(layer=0)", call="allgather(layer=0)", name="allgather"), ranks=2)
async def await_forgotten_and_used(model: Model) -> None:
    whole: Any = model.allgather(model.load_weights(0, model.rank, 2)[0], 0)
    model.forward(0, model.load_weights and Activation(0, 2, {0}, 2), whole)  # type: ignore[arg-type]


@refused(Refused("cannot send", place="pass_to(1)"), ranks=2)
async def await_forgotten_and_sent(model: Model) -> None:
    async def later() -> None: ...

    coroutine = later()
    try:
        await model.pass_to(1, coroutine)
    finally:
        coroutine.close()


@refused(Refused("wrong dictionary", place="weights[0] = ..."))
def tuple_stored(model: Model) -> None:
    model.weights[0] = model.load_weights(0)  # type: ignore[assignment]


@refused(
    Refused(
        "wrong dictionary",
        place="weights[0] = ...",
        dictionary="weights",
        got="the optimizer state of layer 0, unsharded, step 0",
    )
)
def stored_in_the_wrong_dictionary(model: Model) -> None:
    _, model.weights[0] = model.load_weights(0)  # type: ignore[assignment]


@refused(Refused("wrong dictionary", place="grad_weights[0] = ...", kind="weight gradient", got="NoneType None"))
def nothing_stored(model: Model) -> None:
    model.grad_weights[0] = None  # type: ignore[assignment]


@refused(Refused("strange key"))
def strange_key(model: Model) -> None:
    model.weights[object()], _ = model.load_weights(0)


@refused(
    Refused(
        "nothing stored",
        place="activations[3]",
        dictionary="activations",
        have="has only the key 0",
        advice="store a value under this key first",
    )
)
def missing_key(model: Model) -> None:
    model.activations[0] = model.get_activation([0])
    model.activations[3]


@refused(Refused("set by the runtime", place="model.weights = ..."))
def dictionary_replaced(model: Model) -> None:
    model.weights = {}  # type: ignore[assignment]


@refused(Refused("set by the runtime", place="model.time = ..."))
def clock_set(model: Model) -> None:
    model.time = 0  # type: ignore[misc]


@refused(Refused("set by the runtime", place="model.log = ..."))
def log_set(model: Model) -> None:
    model.log = []  # type: ignore[misc]


# --- Names that a model does not have ----------------------------------------------------------------


@refused(Refused("no such name", place="rank 0, t=0, model.all_gather", name="all_gather", meant="allgather"))
def another_librarys_name(model: Model) -> None:
    model.all_gather  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("all_reduce", Refused("no such name", meant="allreduce")),
        ("AllReduce", Refused("no such name", meant="allreduce")),
        ("reduce_scatter", Refused("no such name", meant="scatterreduce")),
        ("send", Refused("no such name", meant="pass_to")),
        ("isend", Refused("no such name", meant="pass_to")),
        ("recv", Refused("no such name", meant="receive")),
        ("foward", Refused("no such name", meant="forward")),
        ("weight", Refused("no such name", meant="weights")),
        ("world_size", Refused("no such name", meant="RANKS")),
        ("optimizer_step", Refused("no such name", meant="update")),
        ("all_to_all", Refused("no such name", meant="")),
    ],
)
def test_a_name_that_a_model_does_not_have_suggests_the_one_that_was_meant(written: str, expected: Refused) -> None:
    with pytest.raises(AttributeError) as refused:
        getattr(Model(), written)
    expected.require(refused.value)


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
    with Refused("no such name", error=AttributeError, meant="offload"):
        meshed.off_load  # type: ignore[attr-defined]
    assert "offload" not in said("off_load", Model())


def test_a_model_can_be_asked_for_a_name_that_it_does_not_have() -> None:
    assert not hasattr(Model(), "all_gather")
    assert not hasattr(Model(), "_ipython_display_")


# --- One assertion for all ------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_is_refused_in_words_that_help(name: str) -> None:
    schedule, size, kind, expected = CASES[name]
    error = refusal(schedule, **size)
    assert isinstance(error, PuzzleError), f"{name} was not refused: {error!r}"
    assert error.reason == kind
    expected.require(error)
    if error.reason == "rule":
        assert str(error).startswith("rank ")
        assert error.line > 0
        assert set(re.findall(r"end: .* line (\d+) was", str(error))) <= {str(error.line)}


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

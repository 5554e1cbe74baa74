"""Schedules that cut weights, states or tokens: ZeRO, tensor and sequence parallelism, experts, local SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lib import Model
from lib.schedules import sequence_parallel as sequence_parallel  # also found here, beside its variants
from lib.schedules import tensor_parallel


def _train(model: Model, layer: int) -> None:
    """Updates what this rank has of a layer, and declares it to be the result."""
    weights, states, _, _, weight_grads = model.storage()
    weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])


async def tensor_parallel_record(model: Model) -> None:
    """The same without a sum for the model's input, which nobody needs; the input is dropped and taken again."""
    await tensor_parallel(model, sum_of_the_input=False)


def local_sgd(every: int) -> Callable[[Model], Any]:
    """Replicas that train alone, and average their weights every so many steps (Stich 2019, section 2)."""

    async def schedule(model: Model) -> None:
        weights, states, inputs, grads, weight_grads = model.storage()
        steps = model.dist.setting.steps
        for layer in range(model.LAYERS):
            weights[layer], states[layer] = model.load_weights(layer)
        for step in range(steps):
            inputs[0] = model.get_activation([model.rank], step)
            for layer in range(model.LAYERS):
                inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
                if layer == 0:
                    del inputs[0]
            grads[0] = model.loss(inputs.pop(model.LAYERS))
            for layer in reversed(range(model.LAYERS)):
                if layer == 0:
                    inputs[0] = model.get_activation([model.rank], step)
                weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
                if layer == 0:
                    del grads[0]
                _train(model, layer)
                if step % every == every - 1:
                    weights[layer] = await model.allreduce(weights[layer], layer)
        for layer in range(model.LAYERS):
            model.set_final_weight(layer, weights[layer])

    return schedule


async def data_parallel_steps(model: Model) -> None:
    """Data parallel training that sums the gradients of every step."""
    weights, states, inputs, grads, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer)
    for step in range(model.dist.setting.steps):
        inputs[0] = model.get_activation([model.rank], step)
        for layer in range(model.LAYERS):
            inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
        grads[0] = model.loss(inputs.pop(model.LAYERS))
        for layer in reversed(range(model.LAYERS)):
            weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
            if layer == 0:
                del grads[0]
            weight_grads[layer] = await model.allreduce(weight_grads[layer], layer)
            _train(model, layer)
    for layer in range(model.LAYERS):
        model.set_final_weight(layer, weights[layer])


async def expert_parallel(model: Model) -> None:
    """Each rank's two microbatches in turn: while the tokens of one travel, those of the other are computed
    (DeepSeek-AI 2024, section 3.2.1). What a collect brings goes into the next dispatch at once."""
    weights, states, inputs, grads, weight_grads = model.storage()
    mine = [b for b in range(model.BATCHES) if b % model.RANKS == model.rank]
    last = model.LAYERS - 1
    back: dict[int, Any] = {}
    there: dict[int, Any] = {}
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    def go_back(b: int, value: Any, layer: int, more: bool) -> None:
        back[b] = model.collect(value, layer, [b])
        if more:
            there[b] = model.dispatch(back[b], layer)

    async def arrived(b: int) -> Any:
        if b in back:
            await back.pop(b)
        return await there.pop(b)

    for b in mine:
        there[b] = model.dispatch(model.get_activation([b]), 0)
    for layer in range(model.LAYERS):
        for b in mine:
            inputs[layer, b] = await arrived(b)
            go_back(b, model.forward(layer, inputs[layer, b], weights[layer]), layer + 1, layer < last)
    for b in mine:
        there[b] = model.dispatch(model.loss(await back.pop(b)), last)
    for layer in reversed(range(model.LAYERS)):
        for b in mine:
            grads[b] = await arrived(b)
            new, grads[b] = model.backward(layer, inputs.pop((layer, b)), grads[b], weights[layer])
            weight_grads[layer] = weight_grads[layer] + new if layer in weight_grads else new
            grad = grads.pop(b)
            if layer:
                go_back(b, grad, layer - 1, more=True)
        _train(model, layer)
        model.set_final_weight(layer, weights[layer])


async def experts_in_turn(model: Model) -> None:
    """Expert parallel without overlap of computation: dispatch, compute, collect, layer by layer."""
    weights, states, inputs, grads, weight_grads = model.storage()
    mine = [b for b in range(model.BATCHES) if b % model.RANKS == model.rank]
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    inputs["own"] = model.get_activation(mine)
    for layer in range(model.LAYERS):
        inputs[layer] = await model.dispatch(inputs.pop("own"), layer)
        inputs["out"] = model.forward(layer, inputs[layer], weights[layer])
        inputs["own"] = await model.collect(inputs.pop("out"), layer + 1, mine)
    grads["own"] = model.loss(inputs.pop("own"))
    for layer in reversed(range(model.LAYERS)):
        grads[0] = await model.dispatch(grads.pop("own"), layer)
        weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
        grads["own"] = grads.pop(0)
        if layer:
            grads["own"] = await model.collect(grads.pop("own"), layer - 1, mine)
        else:
            del grads["own"]
        _train(model, layer)
        model.set_final_weight(layer, weights[layer])

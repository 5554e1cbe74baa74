"""Sharded layers: each rank has a shard of every block, and all microbatches. For games with `layer="block"`."""

from typing import Any

from lib import Model


async def tensor_parallel(model: Model, sum_of_the_input: bool = True) -> None:
    """Each rank has a shard of every block, and all sum what they yield (Shoeybi et al. 2019, section 3)."""
    weights, states, inputs, grads, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    inputs[0] = model.get_activation(range(model.BATCHES))
    for layer in range(model.LAYERS):
        inputs[layer + 1] = model.forward(layer, inputs[layer], weights[layer])
        inputs[layer + 1] = await model.allreduce(inputs[layer + 1], layer + 1)
        if layer == 0 and not sum_of_the_input:
            del inputs[0]
    grads[0] = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        if layer == 0 and not sum_of_the_input:
            inputs[0] = model.get_activation(range(model.BATCHES))
        weight_grads[layer], grads[0] = model.backward(layer, inputs.pop(layer), grads[0], weights[layer])
        if layer or sum_of_the_input:
            grads[0] = await model.allreduce(grads[0], layer - 1)
        if not layer:
            del grads[0]
        weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])


async def sequence_parallel(model: Model) -> None:
    """Between blocks every rank keeps its share of the tokens (Korthikanti et al. 2022, section 4.2.2). The model's
    full input is available at any time, and nobody needs its gradient."""
    weights, states, inputs, grads, weight_grads = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def whole(layer: int) -> Any:
        return await model.allgather(inputs[layer], layer) if layer else model.get_activation(range(model.BATCHES))

    for layer in range(model.LAYERS):
        inputs["whole"] = await whole(layer)
        inputs[layer + 1] = model.forward(layer, inputs.pop("whole"), weights[layer])
        inputs[layer + 1] = await model.scatterreduce(inputs[layer + 1], layer + 1)
    grads[0] = model.loss(inputs.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inputs["whole"] = await whole(layer)
        inputs.pop(layer, None)
        grads[0] = await model.allgather(grads[0], layer)
        weight_grads[layer], grads[0] = model.backward(layer, inputs.pop("whole"), grads[0], weights[layer])
        if layer:
            grads[0] = await model.scatterreduce(grads[0], layer - 1)
        else:
            del grads[0]
        weights[layer], states[layer] = model.update(layer, weight_grads.pop(layer), weights[layer], states[layer])
        model.set_final_weight(layer, weights[layer])

"""Sequence parallelism that keeps the input of the last block whole from its forward to its backward.

Nothing lies between the two, so the first backward has it as its input anyway: a gather less, and the same peak.
"""

from lib import Model


async def sequence_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def gather_input(layer):
        if layer == 0:
            activations["full"] = model.get_activation(range(model.BATCHES))
        elif "full" not in activations:
            activations["full"] = await model.allgather(activations[layer], layer)

    for layer in range(model.LAYERS):
        await gather_input(layer)
        activations["part"] = model.forward(layer, activations["full"], weights[layer])
        if layer < last:
            del activations["full"]
        else:
            activations.pop(layer, None)
        activations[layer + 1] = await model.scatterreduce(activations.pop("part"), layer + 1)

    grad_activations[last] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        await gather_input(layer)
        activations.pop(layer, None)
        grad_activations[layer] = await model.allgather(grad_activations[layer], layer)
        grad_weights[layer], grad_activations["part"] = model.backward(
            layer, activations.pop("full"), grad_activations.pop(layer), weights[layer]
        )
        if layer:
            grad_activations[layer - 1] = await model.scatterreduce(grad_activations["part"], layer - 1)
        del grad_activations["part"]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

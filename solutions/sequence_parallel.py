"""Sequence parallelism: between the blocks, every rank keeps a share of the tokens."""

from lib import Model


async def sequence_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def full_input(layer):
        if layer == 0:
            return model.get_activation(range(model.BATCHES))
        return await model.allgather(activations[layer], layer)

    for layer in range(model.LAYERS):
        activations["part"] = model.forward(layer, await full_input(layer), weights[layer])
        activations[layer + 1] = await model.scatterreduce(activations.pop("part"), layer + 1)

    grad_activations[model.LAYERS - 1] = model.loss(activations.pop(model.LAYERS))
    for layer in reversed(range(model.LAYERS)):
        inp = await full_input(layer)
        activations.pop(layer, None)
        grad = await model.allgather(grad_activations.pop(layer), layer)
        grad_weights[layer], grad_activations["part"] = model.backward(layer, inp, grad, weights[layer])
        del inp, grad
        if layer:
            grad_activations[layer - 1] = await model.scatterreduce(grad_activations["part"], layer - 1)
        del grad_activations["part"]
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

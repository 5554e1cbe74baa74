"""Expert parallelism in turn, all microbatches together: slow, and nothing under way takes memory beside computation.

The loss is computed where the last layer's experts leave the tokens: two trips fewer.
"""

from lib import Model


async def expert_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    activations["own"] = model.get_activation(my_batches)
    for layer in range(model.LAYERS):
        activations[layer] = await model.dispatch(activations.pop("own"), layer)
        out = model.forward(layer, activations[layer], weights[layer])
        if layer < last:
            activations["own"] = await model.collect(out, layer + 1, my_batches)
    grad_activations[last] = model.loss(out)
    del out

    for layer in reversed(range(model.LAYERS)):
        if layer < last:
            grad_activations[layer] = await model.dispatch(grad_activations.pop("own"), layer)
        grad_weights[layer], grad = model.backward(
            layer, activations.pop(layer), grad_activations.pop(layer), weights[layer]
        )
        if layer > 0:
            grad_activations["own"] = await model.collect(grad, layer - 1, my_batches)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

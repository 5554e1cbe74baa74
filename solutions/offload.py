"""Offloading: activations go to the host while the layer that made them computes, and come back just in time."""

from lib import Model


async def offload(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    away = range(1, model.LAYERS - 2)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    for layer in range(model.LAYERS):
        leaving = model.offload(activations[layer]) if layer in away else None
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if leaving is not None:
            model.parked[layer] = await leaving
        if layer == 0 or layer in away:
            del activations[layer]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        coming = model.fetch(model.parked[layer - 1]) if layer - 1 in away else None
        if layer == 0:
            activations[0] = model.get_activation(range(model.BATCHES))
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])
        if coming is not None:
            activations[layer - 1] = await coming
            del model.parked[layer - 1]
    return model

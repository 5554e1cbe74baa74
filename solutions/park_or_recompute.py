"""Odd layers' inputs are parked on the host, even layers' are computed again, and the last two stay on the device."""

from lib import Model


async def park_or_recompute(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    top = model.LAYERS - 1
    parked = range(1, top - 1, 2)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([0])

    leaving = {}

    async def arrived_on_the_host():
        for layer in list(leaving):
            model.parked[layer] = await leaving.pop(layer)
            del activations[layer]

    for layer in range(model.LAYERS):
        if layer in parked:
            await arrived_on_the_host()  # room for one copy at a time
            leaving[layer] = model.offload(activations[layer])
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if layer < top - 1 and layer not in parked:
            del activations[layer]
    await arrived_on_the_host()
    grad_activations[top] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    coming = {}
    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            activations[0] = model.get_activation([0])
        elif layer not in activations:
            below = layer if layer in parked else layer - 1
            activations[below] = await coming.pop(below)
            del model.parked[below]
            if below < layer:
                activations[layer] = model.forward(below, activations[below], weights[below])
        if not coming and model.parked and len(activations) == 1:
            coming[max(model.parked)] = model.fetch(model.parked[max(model.parked)])
        grad_weights[layer], grad_activations["next"] = model.backward(
            layer, activations[layer], grad_activations[layer], weights[layer]
        )
        del activations[layer], grad_activations[layer]
        if layer:
            grad_activations[layer - 1] = grad_activations["next"]
        del grad_activations["next"]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])
    return model

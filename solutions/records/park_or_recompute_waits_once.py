"""Odd inputs are parked, even ones computed again. Only the first copy is waited for.

The wait is long enough that the last copy has left when the output needs its place.
"""

from lib import Model

AWAITED = {1: 3, 3: 6, 5: 8}
"""The forward before which the copy of a layer's input is awaited."""


async def park_or_recompute(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    top = model.LAYERS - 1
    parked = range(1, top - 1, 2)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([0])

    leaving = {}
    for layer in range(model.LAYERS):
        for copied, handle in list(leaving.items()):
            if layer >= AWAITED.get(copied, layer):
                model.parked[copied] = await handle
                del activations[copied], leaving[copied]
        if layer in parked:
            leaving[layer] = model.offload(activations[layer])
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if layer < top - 1 and layer not in parked:
            del activations[layer]
    for copied, handle in leaving.items():
        model.parked[copied] = await handle
        del activations[copied]
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

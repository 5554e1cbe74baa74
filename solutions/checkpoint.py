"""Activation checkpointing: of the inputs, every third and those of the last three layers are kept.

The others are computed again, three layers at a time, when backward needs them. The model's input can be had again.
"""

from lib import Model

EVERY = 3


def checkpoint(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = (model.LAYERS - 1) // EVERY * EVERY

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation(range(model.BATCHES))

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        if layer == 0 or (layer < last and layer % EVERY):
            del activations[layer]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer not in activations:
            start = layer // EVERY * EVERY
            if start == 0:
                activations[0] = model.get_activation(range(model.BATCHES))
            for again in range(start, layer):
                activations[again + 1] = model.forward(again, activations[again], weights[again])
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])
    return model

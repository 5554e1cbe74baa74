"""All batches at once: the input is read again when backward needs it, and a layer is updated as soon as it can be.

No schedule that passes all batches through a layer together needs less: backward(1) holds the model (8 units
of one batch's activation), four batches of its input and four of its gradient. The time is the least there is:
all compute, and all updates but the last, which only has to start.
"""

from lib import Model


def basic(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    everything = range(model.BATCHES)

    # The input of layer 0 is not kept: it costs nothing to read it again.
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        inp = activations[layer] if layer else model.get_activation(everything)
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    # The update frees the gradient before the next backward makes another.
    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation(everything)
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

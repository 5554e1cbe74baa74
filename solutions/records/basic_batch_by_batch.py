"""Standard training, batch by batch: each input is loaded twice, so it is never kept.

With two layers, only recomputing a batch could save more. Consider the third backward(1). The rank holds the
model (8 units of one batch's activation), the gradient of layer 1 (2) and the two inputs of that backward (2).
For the two earlier batches it also holds either the gradient of layer 0 (2) or the two activation gradients
that produce it (2).
"""

from lib import Model


def basic(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        for layer in range(model.LAYERS):
            inp = activations[layer] if layer else model.get_activation([batch])
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            inp = activations.pop(layer) if layer else model.get_activation([batch])
            grad_out = grad_activations.pop("out")
            grad, grad_activations["out"] = model.backward(layer, inp, grad_out, weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        del grad_activations["out"]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model


grad_accum = basic
"""A puzzle of the same size, and of the same work."""

"""Gradient accumulation: one batch at a time, so that only one batch's activations exist."""

from lib import Model


def grad_accum(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            grad, grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            # The sum is no larger than its parts: only one gradient per layer is kept.
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            del activations[layer], grad_activations[layer + 1]
        del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

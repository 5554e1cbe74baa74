"""Local SGD: every rank trains a replica on its own batch for all steps; then the weights are averaged once."""

from lib import Model


async def local_sgd(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    steps = model.dist.setting.steps

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for step in range(steps):
        activations[0] = model.get_activation([model.rank], step)
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            if layer == 0:
                del activations[0]  # the model's input can be had again
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        for layer in reversed(range(model.LAYERS)):
            if layer == 0:
                activations[0] = model.get_activation([model.rank], step)
            grad_weights[layer], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if layer == 0:
                del grad_activations[0]
            new = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
            weights[layer], opt_states[layer] = new
            del grad_weights[layer]

    for layer in range(model.LAYERS):
        weights[layer] = await model.allreduce(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    return model

"""An all-reduce in two levels, where the model's input is dropped after the first forward and taken again."""

from lib import Model


async def hierarchy(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        activations.pop(0, None)
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            activations[0] = model.get_activation([model.rank])
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="gpu")
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="machine")
        grad_weights[layer] = await model.allgather(grad_weights[layer], layer, group="gpu")
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])
    del grad_activations[0]
    return model

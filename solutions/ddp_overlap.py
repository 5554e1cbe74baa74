"""DDP with overlap: each gradient is summed over the ranks while backward goes on with the next layer."""

from lib import Model


async def ddp_overlap(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    sums = {}
    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        sums[layer] = model.allreduce(grad_weights[layer], layer)
        del grad_weights[layer]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer] = await sums[layer]
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        model.set_final_weight(layer, weights[layer])
    return model

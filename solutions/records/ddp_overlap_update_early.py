"""DDP with overlap that updates the upper layers while backward goes on, which frees their gradients early.

The sum of a layer's gradient travels during the backward of the layer below. Then the layer is updated. The updates of
the three lowest layers wait until the end, when they fill the time in which the last sums travel.
"""

from lib import Model

LAST = 3


async def ddp_overlap(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

    sums = {}

    async def update(layer):
        grad_weights[layer] = await sums.pop(layer)
        new = model.update(layer, grad_weights.pop(layer), weights[layer], opt_states[layer])
        weights[layer], opt_states[layer] = new
        model.set_final_weight(layer, weights[layer])

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        if layer == 0:
            del grad_activations[0]
        sums[layer] = model.allreduce(grad_weights.pop(layer), layer)
        if layer + 1 in sums and layer + 1 >= LAST:
            await update(layer + 1)

    for layer in list(sums):
        await update(layer)
    return model

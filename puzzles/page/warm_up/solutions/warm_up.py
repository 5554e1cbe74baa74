"""The first puzzle of the page, solved."""

from lib import Model


async def warm_up(model: Model) -> Model:
    """Two ranks, one after the other."""
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    layers = [0, 1] if model.rank == 0 else [2]
    for layer in layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    if model.rank == 0:
        activations[0] = model.get_activation(range(model.BATCHES))
    else:
        activations[2] = await model.receive()
    for layer in layers:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    if model.rank == 0:
        await model.pass_to(1, activations[2])
        grad_activations[2] = await model.receive()
    else:
        grad_activations[3] = model.loss(activations[3])
    del activations[layer + 1]

    for layer in reversed(layers):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
    if model.rank == 1:
        await model.pass_to(0, grad_activations[2])
    del grad_activations[layer]

    for layer in layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

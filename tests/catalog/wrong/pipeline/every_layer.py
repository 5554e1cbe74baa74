# pipeline: rule
"""Wrong: every rank has every layer."""

from lib import Model


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    stage = range(model.LAYERS)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    if first:
        activations[0] = model.get_activation(range(model.BATCHES))
    else:
        activations[stage[0]] = await model.receive()
    for layer in stage:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])

    # After the stage's last layer, either the loss starts backward here, or the next rank continues.
    if last:
        grad_activations[stage[-1] + 1] = model.loss(activations[stage[-1] + 1])
    else:
        await model.pass_to(model.rank + 1, activations[stage[-1] + 1])
        grad_activations[stage[-1] + 1] = await model.receive()
    for layer in reversed(stage):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
    if not first:
        await model.pass_to(model.rank - 1, grad_activations[stage[0]])

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

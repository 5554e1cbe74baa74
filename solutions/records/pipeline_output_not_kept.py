"""A pipeline with all batches together, whose ranks delete the output of their stage once it is sent.

In the backward of its upper layer a rank holds the model (8 units of one batch's activation), and the inputs of its
two layers and the gradient (4 each). Nothing of it can be had again: that is the least for a stage of two layers.
"""

from lib import Model


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    activations[stage[0]] = model.get_activation(range(model.BATCHES)) if first else await model.receive()
    for layer in stage:
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    out = activations.pop(stage[-1] + 1)
    if last:
        grad_activations["out"] = model.loss(out)
    else:
        await model.pass_to(model.rank + 1, out)
    del out
    if not last:
        grad_activations["out"] = await model.receive()

    for layer in reversed(stage):
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, activations.pop(layer), grad_activations["out"], weights[layer]
        )
    if not first:
        await model.pass_to(model.rank - 1, grad_activations["out"])
    del grad_activations["out"]

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

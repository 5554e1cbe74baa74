"""GPipe that adds each gradient to a sum at once, and keeps no output: of the sums there are two on each rank.

The last rank decides the peak. It goes back as soon as it has gone forward, so it has no time to compute an activation
again. As in GPipe, all batches have gone forward before the first goes back.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    for batch in range(model.BATCHES):
        if not first:
            activations[stage[0], batch] = await model.receive()
        for layer in stage:
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            activations[layer + 1, batch] = model.forward(layer, inp, weights[layer])
        out = activations.pop((stage[-1] + 1, batch))
        if last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(model.rank + 1, out)

    for batch in range(model.BATCHES):
        if not last:
            grad_activations[batch] = await model.receive()
        for layer in reversed(stage):
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad_out = grad_activations.pop(batch)
            grad, grad_activations[batch] = model.backward(layer, inp, grad_out, weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[batch])
        del grad_activations[batch]

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model


pipeline = gpipe
"""A puzzle of the same size."""

"""1F1B (PipeDream-flush): a rank goes backward with a batch as soon as it can.

So rank r has no more than RANKS - r batches under way, however many there are (Narayanan et al. 2019, "PipeDream"). The
input of layer 0 is read again, not kept, and one gradient for each layer is summed up on the way. The least memory
known in GPipe's time with every layer on one rank only; batches in parallel, as in other records, do better still.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(batch):
        if not first:
            activations[stage[0], batch] = await model.receive(model.rank - 1)
        for layer in stage:
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            activations[layer + 1, batch] = model.forward(layer, inp, weights[layer])
        out = activations.pop((stage[-1] + 1, batch))
        if last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(model.rank + 1, out)

    async def backward(batch):
        if not last:
            grad_activations[batch] = await model.receive(model.rank + 1)
        for layer in reversed(stage):
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad, grad_activations[batch] = model.backward(layer, inp, grad_activations[batch], weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[batch])
        del grad_activations[batch]

    ahead = min(model.BATCHES, model.RANKS - model.rank)
    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES):
        await backward(batch)
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

"""A pipeline that each batch passes several times: layers are dealt out in turn, so that the stages are short.

A rank waits for its first batch as long as the stages before it take: with one layer each, half of what two take
(interleaved stages, Narayanan et al. 2021, "Efficient large-scale language model training", section 2.2). The fastest
known with every layer on one rank only; batches in parallel, as in other records, do better still.
"""

from lib import Model


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    mine = range(model.rank, model.LAYERS, model.RANKS)
    above, below = (model.rank + 1) % model.RANKS, (model.rank - 1) % model.RANKS
    last = model.LAYERS - 1

    async def forward(layer, batch):
        # The input of layer 0 is not kept: it costs nothing to read it again.
        if layer:
            activations[layer, batch] = await model.receive(below)
        inp = activations[layer, batch] if layer else model.get_activation([batch])
        activations["out"] = model.forward(layer, inp, weights[layer])
        if layer == last:
            grad_activations[batch] = model.loss(activations.pop("out"))
        else:
            await model.pass_to(above, activations.pop("out"))

    async def backward(layer, batch):
        if layer != last:
            grad_activations[batch] = await model.receive(above)
        inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
        grad, grad_activations[batch] = model.backward(layer, inp, grad_activations[batch], weights[layer])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        del grad
        grad_inp = grad_activations.pop(batch)
        if layer:
            await model.pass_to(below, grad_inp)

    # At most RANKS batches go round together: more would only wait for each other.
    for start in range(0, model.BATCHES, model.RANKS):
        group = range(start, min(start + model.RANKS, model.BATCHES))
        for layer in mine:
            if layer not in weights:
                weights[layer], opt_states[layer] = model.load_weights(layer)
            for batch in group:
                await forward(layer, batch)
        for layer in reversed(mine):
            for batch in group:
                await backward(layer, batch)
            # Complete, and gone before the rank's next layer begins.
            if group[-1] == model.BATCHES - 1:
                weights[layer], opt_states[layer] = model.update(
                    layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
                )
                model.set_final_weight(layer, weights[layer])
    return model

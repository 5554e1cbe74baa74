"""Interleaved 1F1B: two chunks of the model on each rank, in Megatron-LM's order."""

from lib import Model


async def interleaved(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, ranks = model.rank, model.RANKS
    before, after = (me - 1) % ranks, (me + 1) % ranks
    my_layers = range(me, model.LAYERS, ranks)
    for layer in my_layers:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    def tag(layer, batch):
        return layer * model.BATCHES + batch

    async def forward(layer, batch):
        if layer == 0:
            activations[layer, batch] = model.get_activation([batch])
        else:
            activations[layer, batch] = await model.receive(before, tag(layer, batch))
        out = model.forward(layer, activations[layer, batch], weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await model.pass_to(after, out, tag(layer + 1, batch))

    async def backward(layer, batch):
        if layer < model.LAYERS - 1:
            grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
        inp, grad_out = activations.pop((layer, batch)), grad_activations.pop((layer, batch))
        grad, grad_in = model.backward(layer, inp, grad_out, weights[layer])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if layer > 0:
            await model.pass_to(before, grad_in, tag(layer - 1, batch))

    # As many batches as there are ranks go through one chunk, then through the next one.
    groups = [range(start, start + ranks) for start in range(0, model.BATCHES, ranks)]
    forwards = [(layer, batch) for group in groups for layer in my_layers for batch in group]
    backwards = [(layer, batch) for group in groups for layer in reversed(my_layers) for batch in group]

    ahead = min(2 * (ranks - 1 - me) + model.LAYERS - ranks, len(forwards))
    for layer, batch in forwards[:ahead]:
        await forward(layer, batch)
    for i, (layer, batch) in enumerate(backwards):
        if i + ahead < len(forwards):
            await forward(*forwards[i + ahead])
        await backward(layer, batch)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

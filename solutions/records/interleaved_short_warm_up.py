"""Interleaved 1F1B with half of Megatron-LM's warm-up: seven chunks in flight instead of eleven, and not a step more.

Megatron-LM runs two forwards more for each rank that follows, as if each hop cost the time of a forward and of a
backward in both directions. Where messages are free, one is enough. Rank 0 takes the model's input again, and has
room to receive what the last rank sends it one forward early; until then the last rank would have to keep it.
"""

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

    async def arrive(layer, batch):
        if layer and (layer, batch) not in activations:
            activations[layer, batch] = await model.receive(before, tag(layer, batch))

    async def forward(layer, batch):
        await arrive(layer, batch)
        inp = activations[layer, batch] if layer else model.get_activation([batch])
        out = model.forward(layer, inp, weights[layer])
        if layer == model.LAYERS - 1:
            grad_activations[layer, batch] = model.loss(out)
        else:
            await model.pass_to(after, out, tag(layer + 1, batch))

    async def backward(layer, batch):
        if layer < model.LAYERS - 1:
            grad_activations[layer, batch] = await model.receive(after, tag(layer, batch))
        inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
        grad, grad_in = model.backward(layer, inp, grad_activations.pop((layer, batch)), weights[layer])
        grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if layer:
            await model.pass_to(before, grad_in, tag(layer - 1, batch))

    groups = [range(start, start + ranks) for start in range(0, model.BATCHES, ranks)]
    forwards = [(layer, batch) for group in groups for layer in my_layers for batch in group]
    backwards = [(layer, batch) for group in groups for layer in reversed(my_layers) for batch in group]

    ahead = model.LAYERS - 1 - me
    for layer, batch in forwards[:ahead]:
        await forward(layer, batch)
    for i, (layer, batch) in enumerate(backwards, start=ahead):
        if i < len(forwards):
            await forward(*forwards[i])
        if me == 0 and ahead + ranks < i + 1 < len(forwards):
            await arrive(*forwards[i + 1])
        await backward(layer, batch)

    for layer in my_layers:
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

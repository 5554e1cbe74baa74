"""1F1B with stages of equal time: the head is alone on the last rank, and the other ranks have three layers each."""

from lib import Model

COUNTS = (3, 3, 3, 1)


async def uneven_stages(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    mine = range(sum(COUNTS[:me]), sum(COUNTS[: me + 1]))
    for layer in mine:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(batch):
        out = await model.receive(me - 1) if me else model.get_activation([batch])
        for layer in mine:
            if layer:  # token numbers are there again when they are needed
                activations[layer, batch] = out
            out = model.forward(layer, out, weights[layer])
        if me == last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(batch):
        if me < last:
            grad_activations[batch] = await model.receive(me + 1)
        for layer in reversed(mine):
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad, grad_in = model.backward(layer, inp, grad_activations.pop(batch), weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer:
                grad_activations[batch] = grad_in
        if me:
            await model.pass_to(me - 1, grad_activations.pop(batch))

    ahead = min(last - me, model.BATCHES)
    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES):
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)
        await backward(batch)

    for layer in mine:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

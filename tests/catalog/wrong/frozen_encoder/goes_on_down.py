# frozen_encoder: rule
"""Wrong: the gradient goes on below the first trained layer."""

from lib import Model

COUNTS = (6, 3, 2, 2)


async def frozen_encoder(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    mine = range(sum(COUNTS[:me]), sum(COUNTS[: me + 1]))
    frozen = model.dist.setting.frozen
    trained = [layer for layer in mine if layer not in frozen]
    first = len(frozen)  # the first trained layer
    for layer in mine:
        weights[layer], state = model.load_weights(layer)
        if layer in trained:
            opt_states[layer] = state
    state = None

    async def forward(batch):
        out = await model.receive(me - 1) if me else model.get_activation([batch])
        for layer in mine:
            if layer in trained:
                activations[layer, batch] = out
            out = model.forward(layer, out, weights[layer])
        if me == last:
            grad_activations[last, batch] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(batch):
        grad = grad_activations.pop((last, batch)) if me == last else await model.receive(me + 1)
        for layer in reversed(trained):  # first what the previous rank waits for
            grad_activations[layer] = grad
            if layer:
                grad = model.backward_input(layer, activations[layer, batch], grad, weights[layer])
        if trained[0] > first:
            await model.pass_to(me - 1, grad)
        del grad
        for layer in reversed(trained):
            new = model.backward_weight(layer, activations.pop((layer, batch)), grad_activations.pop(layer))
            grad_weights[layer] = grad_weights[layer] + new if layer in grad_weights else new

    ahead = min(last - me, model.BATCHES) if trained else model.BATCHES
    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES if trained else 0):
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)
        await backward(batch)

    for layer in trained:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

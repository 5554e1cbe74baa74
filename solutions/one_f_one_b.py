"""1F1B: each rank goes back as soon as it can, so that few activations wait."""

from lib import Model


async def one_f_one_b(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    async def forward(batch):
        activations[batch] = await model.receive(me - 1) if me else model.get_activation([batch])
        out = model.forward(me, activations[batch], weights[me])
        if me == last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(batch):
        if me < last:
            grad_activations[batch] = await model.receive(me + 1)
        grad, grad_in = model.backward(me, activations.pop(batch), grad_activations.pop(batch), weights[me])
        grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad
        if me:
            await model.pass_to(me - 1, grad_in)

    # A batch that leaves this rank needs the ranks after it once forward and once back.
    ahead = min(last - me, model.BATCHES)
    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES):
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)
        await backward(batch)

    weights[me], opt_states[me] = model.update(me, grad_weights[me], weights[me], opt_states[me])
    model.set_final_weight(me, weights[me])
    return model

"""1F1B whose first rank drops the model's input after its forward, and takes it again for the backward.

The first rank has the most batches in flight, but their inputs can be had again. So rank 1 decides the peak.
"""

from lib import Model


async def one_f_one_b(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    async def forward(batch):
        inp = await model.receive(me - 1) if me else model.get_activation([batch])
        if me:
            activations[batch] = inp
        out = model.forward(me, inp, weights[me])
        if me == last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(batch):
        if me < last:
            grad_activations[batch] = await model.receive(me + 1)
        inp = activations.pop(batch) if me else model.get_activation([batch])
        grad, grad_in = model.backward(me, inp, grad_activations.pop(batch), weights[me])
        grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad
        if me:
            await model.pass_to(me - 1, grad_in)

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

"""ZB-H1: 1F1B whose weight gradients wait, so that nobody waits for them."""

from lib import Model


async def zb_h1(model: Model) -> Model:
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

    async def backward_input(batch):
        if me < last:
            grad_activations[batch] = await model.receive(me + 1)
        grad_in = model.backward_input(me, activations[batch], grad_activations[batch], weights[me])
        if me:
            await model.pass_to(me - 1, grad_in)

    def backward_weight(batch):
        grad = model.backward_weight(me, activations.pop(batch), grad_activations.pop(batch))
        grad_weights[me] = grad_weights[me] + grad if me in grad_weights else grad

    ahead = min(last - me, model.BATCHES)
    late = me  # with the forwards that it has not begun, a rank holds as many activations as rank 0
    for batch in range(ahead):
        await forward(batch)
    for batch in range(model.BATCHES):
        if batch + ahead < model.BATCHES:
            await forward(batch + ahead)
        await backward_input(batch)
        if batch >= late:
            backward_weight(batch - late)
    for batch in range(max(0, model.BATCHES - late), model.BATCHES):
        backward_weight(batch)

    weights[me], opt_states[me] = model.update(me, grad_weights[me], weights[me], opt_states[me])
    model.set_final_weight(me, weights[me])
    return model

"""ZB-H2 whose weight gradients are one batch later than in the paper.

The sum of gradients, as large as two activations, then begins when all eight batches have gone forward. Eight
activations need less than seven and the sum, and no step is lost.
"""

from lib import Model


async def zb_h2(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    weights[me], opt_states[me] = model.load_weights(me)

    async def forward(step, batch):
        activations[batch] = await model.receive(me - 1) if me else model.get_activation([batch], step)
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

    ahead = min(2 * (last - me), model.BATCHES)
    late = 2 * me + 1
    for step in range(model.dist.setting.steps):
        for batch in range(ahead):
            await forward(step, batch)
        for batch in range(model.BATCHES):
            if batch + ahead < model.BATCHES:
                await forward(step, batch + ahead)
            await backward_input(batch)
            if batch >= late:
                backward_weight(batch - late)
        for batch in range(max(0, model.BATCHES - late), model.BATCHES):
            backward_weight(batch)
        # No rank waits for another here: the next step begins where this one ends.
        weights[me], opt_states[me] = model.update(me, grad_weights.pop(me), weights[me], opt_states[me])

    model.set_final_weight(me, weights[me])
    return model

"""2BW: 1F1B that never stops. Data of a step meet the weights from before the last update, so two versions are kept."""

from lib import Model


async def weight_versions(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    me, last = model.rank, model.RANKS - 1
    steps = model.dist.setting.steps
    weights[0], opt_states[0] = model.load_weights(me)  # by version

    async def forward(number):
        step, batch = divmod(number, model.BATCHES)
        inp = await model.receive(me - 1) if me else model.get_activation([batch], step)
        if me:  # rank 0 gets the model's input again
            activations[number] = inp
        out = model.forward(me, inp, weights[max(0, step - 1)])
        if me == last:
            grad_activations[number] = model.loss(out)
        else:
            await model.pass_to(me + 1, out)

    async def backward(number):
        step, batch = divmod(number, model.BATCHES)
        if me < last:
            grad_activations[number] = await model.receive(me + 1)
        inp = activations.pop(number) if me else model.get_activation([batch], step)
        grad, grad_in = model.backward(me, inp, grad_activations.pop(number), weights[max(0, step - 1)])
        grad_weights[step] = grad_weights[step] + grad if step in grad_weights else grad
        if me:
            await model.pass_to(me - 1, grad_in)
        if batch == model.BATCHES - 1:
            weights.pop(step - 1, None)  # no later step computes with it
            weights[step + 1], opt_states[step + 1] = model.update(
                me, grad_weights.pop(step), weights[step], opt_states.pop(step)
            )

    numbers = steps * model.BATCHES
    ahead = min(last - me, model.BATCHES)
    for number in range(ahead):
        await forward(number)
    for number in range(numbers):
        if number + ahead < numbers:
            await forward(number + ahead)
        await backward(number)

    model.set_final_weight(me, weights[steps])
    return model

"""A pipeline with a timetable: a batch starts so that it reaches rank 1 just when the previous one has left.

Each rank works in the order of the timetable, and messages do the rest. So a rank holds one batch. Rank 0 holds
at most two, but it can load its input again. Before there are gradients to sum, there is room for one more
batch: the second follows the first right away, which saves almost the time of a batch. Each peak is then two
layers (8 units of one batch's activation), the sums of their gradients (4), and what one backward needs: two
inputs and a gradient (3).
"""

from lib import Model


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    depth = model.LAYERS // model.RANKS
    stage = range(model.rank * depth, (model.rank + 1) * depth)
    first, last = model.rank == 0, model.rank == model.RANKS - 1

    for layer in stage:
        weights[layer], opt_states[layer] = model.load_weights(layer)

    async def forward(batch):
        if not first:
            activations[stage[0], batch] = await model.receive(model.rank - 1)
        for layer in stage:
            inp = activations[layer, batch] if layer else model.get_activation([batch])
            activations[layer + 1, batch] = model.forward(layer, inp, weights[layer])
        out = activations.pop((stage[-1] + 1, batch))
        if last:
            grad_activations[batch] = model.loss(out)
        else:
            await model.pass_to(model.rank + 1, out)

    async def backward(batch):
        if not last:
            grad_activations[batch] = await model.receive(model.rank + 1)
        for layer in reversed(stage):
            inp = activations.pop((layer, batch)) if layer else model.get_activation([batch])
            grad_out = grad_activations.pop(batch)
            grad, grad_activations[batch] = model.backward(layer, inp, grad_out, weights[layer])
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
        if not first:
            await model.pass_to(model.rank - 1, grad_activations[batch])
        del grad_activations[batch]

    # In steps, ignoring messages: a batch is on rank 1 and the ranks above for `away`.
    away = 2 * (model.LAYERS - depth)
    timetable = []
    for batch in range(model.BATCHES):
        departure = depth + (batch - 1) * away if batch else 0
        timetable.append((departure + stage[0], batch, forward))
        timetable.append((departure + 2 * model.LAYERS - stage[-1] - 1, batch, backward))
    for _, batch, work in sorted(timetable, key=lambda entry: entry[:2]):
        await work(batch)

    for layer in stage:
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

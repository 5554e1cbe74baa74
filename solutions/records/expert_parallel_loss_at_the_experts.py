"""Expert parallelism that computes the loss where the last layer's experts leave the tokens.

The loss of a token needs that token only. So the last outputs stay with the experts: two trips fewer for each
microbatch, and no rank ever waits after the first dispatch. A call that has ended is awaited before the next one is
made, since it holds what it brought until then.
"""

from lib import Model


async def expert_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    back, there = {}, {}

    def travel(value, layer, batch):
        back[batch] = model.collect(value, layer, [batch])
        there[batch] = model.dispatch(back[batch], layer)

    async def arrive(storage, key, batch):
        if batch in back:
            await back.pop(batch)
        storage[key] = await there.pop(batch)

    for batch in my_batches:
        there[batch] = model.dispatch(model.get_activation([batch]), 0)
    for layer in range(model.LAYERS):
        for batch in my_batches:
            await arrive(activations, (layer, batch), batch)
            out = model.forward(layer, activations[layer, batch], weights[layer])
            if layer < last:
                travel(out, layer + 1, batch)
            else:
                grad_activations[batch] = model.loss(out)

    for layer in reversed(range(model.LAYERS)):
        for batch in my_batches:
            if batch in there:
                await arrive(grad_activations, batch, batch)
            grad, out = model.backward(
                layer, activations.pop((layer, batch)), grad_activations.pop(batch), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer > 0:
                if batch == my_batches[-1]:
                    await arrive(grad_activations, my_batches[0], my_batches[0])
                travel(out, layer - 1, batch)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

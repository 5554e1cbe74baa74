"""Expert parallelism with two microbatches in turn: while the tokens of one travel, the other is computed."""

from lib import Model


async def expert_parallel(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    my_batches = range(model.rank, model.BATCHES, model.RANKS)
    last = model.LAYERS - 1
    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    back, there = {}, {}  # by batch: the call that brings it back, and the one that takes it to the next experts

    def travel(value, layer, batch):
        back[batch] = model.collect(value, layer, [batch])
        there[batch] = model.dispatch(back[batch], layer)

    async def arrive(batch):
        if batch in back:
            await back.pop(batch)
        return await there.pop(batch)

    for batch in my_batches:
        there[batch] = model.dispatch(model.get_activation([batch]), 0)
    for layer in range(model.LAYERS):
        for batch in my_batches:
            activations[layer, batch] = await arrive(batch)
            out = model.forward(layer, activations[layer, batch], weights[layer])
            if layer < last:
                travel(out, layer + 1, batch)
            else:
                back[batch] = model.collect(out, layer + 1, [batch])

    for batch in my_batches:
        there[batch] = model.dispatch(model.loss(await back.pop(batch)), last)
    for layer in reversed(range(model.LAYERS)):
        for batch in my_batches:
            grad_activations[batch] = await arrive(batch)
            grad, out = model.backward(
                layer, activations.pop((layer, batch)), grad_activations.pop(batch), weights[layer]
            )
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            if layer > 0:
                travel(out, layer - 1, batch)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

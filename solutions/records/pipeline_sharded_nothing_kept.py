"""Fully sharded data parallelism that keeps no activation: each backward starts again from the model's input.

A backward needs a whole weight, its input and a gradient, in addition to a quarter of all weights and optimizer states.
This schedule never holds more, so of those that share the model evenly none needs less memory. The price is a number of
forwards that grows with the square of the layers.
"""

from lib import Model

FORGOTTEN = {1, 2, 3, 4, 5, 6}
"""Inputs of layers that are dropped on the way forward and computed again."""

FORGOTTEN_AGAIN = {1, 2, 3, 4, 5, 6}
"""Of these inputs, those that are dropped again on the way to a later one."""


async def pipeline(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1
    batches = range(model.rank, model.BATCHES, model.RANKS)
    kept = {0}  # inputs that a rank with batches has; it can always read that of layer 0 again

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    def drop_input(layer):
        kept.discard(layer)
        activations.pop(layer, None)

    async def gather(layer):
        if not weights[layer].is_complete():
            weights[layer] = await model.allgather(weights[layer], layer)

    async def forward(layer):
        await gather(layer)
        if batches:
            inp = activations[layer] if layer else model.get_activation(batches)
            activations[layer + 1] = model.forward(layer, inp, weights[layer])
        kept.add(layer + 1)

    for layer in range(model.LAYERS):
        await forward(layer)
        if layer != last:
            keep_shard(layer)
        if layer in FORGOTTEN:
            drop_input(layer)
    if batches:
        grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        for before in range(max(kept & {*range(layer + 1)}), layer):
            await forward(before)
            keep_shard(before)
            if before in FORGOTTEN_AGAIN:
                drop_input(before)
        await gather(layer)
        if batches:
            inp = activations.pop(layer) if layer else model.get_activation(batches)
            grad_weights[layer], grad_activations["out"] = model.backward(
                layer, inp, grad_activations["out"], weights[layer]
            )
            del inp
        else:
            grad_weights[layer] = model.fake_grad(layer, [])
        kept.discard(layer)
        keep_shard(layer)
        if layer == 0:
            grad_activations.clear()
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

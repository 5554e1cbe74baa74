"""DDP that keeps only a shard of each layer after its forward, and gathers the whole again for its backward.

Each backward holds the whole weight, its two inputs, and of everything else a RANKS-th part. While all ranks are in
the same layer's backward they cannot hold less: the rest of the model has to be somewhere. The last layer is not
forgotten, because its backward comes next; the first gather that costs time is that of the layer before it.
"""

from lib import Model


async def ddp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        opt_states[layer] = opt_state.shard(model.rank, model.RANKS)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer != last:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        # The input of layer 0 is read again when its backward comes.
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer != last:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)

        # Every rank updates its shard at once, so nobody waits for it and the gradient is gone.
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

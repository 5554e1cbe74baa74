"""No pipeline but FSDP, in which two ranks, not all, update a layer: half a layer each, all at the end.

A pipeline waits for its first batch to come round; batches in parallel never wait. An update takes as long for a shard
as for a whole layer, so few large updates on each rank beat many small ones.
"""

from lib import Model

OWNERS = 2


async def gpipe(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    def keep_mine(storage, layer, value):
        """Stores what this rank owns of a layer, and forgets the rest. Ownership is dealt out in turn."""
        storage.pop(layer, None)
        for part in range(OWNERS):
            if (layer * OWNERS + part) % model.RANKS == model.rank:
                storage[layer] = value.shard(part, OWNERS)

    for layer in range(model.LAYERS):
        weights[layer], opt_state = model.load_weights(layer)
        keep_mine(opt_states, layer, opt_state)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer != last:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    # From here on the shards are for gathering only; what is left of a layer afterwards is its owners' halves.
    for layer in reversed(range(model.LAYERS)):
        if layer != last:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        keep_mine(weights, layer, weights[layer])
        keep_mine(grad_weights, layer, await model.allreduce(grad_weights[layer], layer))
    del grad_activations["out"]

    for layer in list(weights):
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

"""Data parallelism in which layer 0 is whole on every rank, and the layers above it are sharded.

Between replicating all (no gather) and sharding all (one gather for each layer): the replicated layer is the first,
because the peak is at the backward of the last, and a gradient that is reduced there to a shard leaves room below.
"""

from lib import Model


async def ddp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    sharded = range(1, model.LAYERS)

    for layer in range(model.LAYERS):
        part = (model.rank, model.RANKS) if layer in sharded else (0, 1)
        weights[layer], opt_states[layer] = model.load_weights(layer, *part)

    # The input of layer 0 is not kept: it costs nothing to read it again.
    for layer in range(model.LAYERS):
        if layer in sharded:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        if layer in sharded:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
            grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        else:
            grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

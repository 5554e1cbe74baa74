"""Weight-sharded data parallel that gathers each weight once, and keeps it whole until its backward.

This is the minimum time with a shard of every layer on every rank: a batch's work, and for each layer one
gather, one reduction and one update, of which the last update only has to start. The optimizer states stay
sharded throughout, and the weights are sharded again when the step ends.
"""

from lib import Model


async def wsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    def my_shard(value):
        return value.shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # The input of layer 0 is not kept: loading it again is free.
    for layer in range(model.LAYERS):
        weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    # A layer leaves only a shard, so the memory of its full weight is free for the next gradient.
    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = my_shard(weights[layer])
        grad_weights[layer] = my_shard(await model.allreduce(grad_weights[layer], layer))
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

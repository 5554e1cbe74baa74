"""Weight-sharded data parallel in which each rank cuts its shard from each sum right away, and updates.

An all-reduce returns the full gradient, but a rank needs only the part for its shard of the weight. The last
layer's weight is gathered once, because its backward comes right after its forward. At the first backward a
rank then holds one full weight, shards of everything else, and the activations. Without recomputation none of
these can be missing.
"""

from lib import Model


async def wsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    last = model.LAYERS - 1

    def my_shard(value):
        return value.shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    # The input of layer 0 is not kept: loading it again is free.
    for layer in range(model.LAYERS):
        weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer != last:
            weights[layer] = my_shard(weights[layer])
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer != last:
            weights[layer] = await model.allgather(weights[layer], layer)
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

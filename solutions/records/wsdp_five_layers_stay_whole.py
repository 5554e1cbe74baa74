"""Weight-sharded data parallel that gathers only the first weight twice: the last five layers stay whole.

Between two variants of fsdp_gather_once: one gather more than `every_layer_all_reduced`, 0.3 timesteps, and at the peak
the memory of a weight without the rank's own shard less.
"""

from lib import Model

WHOLE = 5


async def wsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    whole = range(model.LAYERS - WHOLE, model.LAYERS)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights[layer])
        if layer not in whole:
            weights[layer] = weights[layer].shard(model.rank, model.RANKS)
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        if layer not in whole:
            weights[layer] = await model.allgather(weights[layer], layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(
            layer, inp, grad_activations["out"], weights[layer]
        )
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        grad_weights[layer] = grad_weights[layer].shard(model.rank, model.RANKS)

        # All ranks update at the same time, so no rank waits for it.
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

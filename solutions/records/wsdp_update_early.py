"""Weight-sharded data parallelism that sums each gradient and uses it before the next backward makes another.

The model's input is dropped after the first forward and taken again.
"""

from lib import Model


async def wsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    async def full(layer):
        """The full weight in place of the rank's own shard, which is cut from it again."""
        weights[layer] = await model.allgather(weights[layer], layer)
        return weights[layer]

    def keep_shard(layer):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)

    for layer in range(model.LAYERS):
        weight = await full(layer)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weight)
        del weight
        keep_shard(layer)
    grad_activations["out"] = model.loss(activations.pop(model.LAYERS))

    for layer in reversed(range(model.LAYERS)):
        weight = await full(layer)
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        grad_weights[layer], grad_activations["out"] = model.backward(layer, inp, grad_activations["out"], weight)
        del inp, weight
        keep_shard(layer)
        if layer == 0:
            grad_activations.clear()
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(
            layer, grad_weights.pop(layer), weights[layer], opt_states[layer]
        )
        model.set_final_weight(layer, weights[layer])
    return model

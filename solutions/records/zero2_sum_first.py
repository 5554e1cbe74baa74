"""ZeRO-1 on several microbatches: whole gradients are added up first, so that one reduce-scatter a layer is enough.

The last microbatch's backward scatters the sum of each layer at once, when its own part has just been added.
"""

from lib import Model


async def zero2(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    per_rank = model.BATCHES // model.RANKS
    batches = range(model.rank * per_rank, (model.rank + 1) * per_rank)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

    for batch in batches:
        activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
            activations.pop(0, None)
        grad_activations[model.LAYERS] = model.loss(activations.pop(model.LAYERS))

        for layer in reversed(range(model.LAYERS)):
            if layer == 0:
                activations[0] = model.get_activation([batch])
            grad, grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            if layer == 0:
                del grad_activations[0]
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            del grad
            if batch == batches[-1]:
                grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        weights[layer] = await model.allgather(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    return model

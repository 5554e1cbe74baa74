"""ZeRO-2: optimizer states and gradients in shards; the gradient of each microbatch is scattered at once."""

from lib import Model


async def zero2(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    per_rank = model.BATCHES // model.RANKS

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)

    for batch in range(model.rank * per_rank, (model.rank + 1) * per_rank):
        activations[0] = model.get_activation([batch])
        for layer in range(model.LAYERS):
            activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
        grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
        del activations[model.LAYERS]

        # A whole gradient exists only between its backward and its reduce-scatter; shards are added up.
        for layer in reversed(range(model.LAYERS)):
            grad_weights["full"], grad_activations[layer] = model.backward(
                layer, activations[layer], grad_activations[layer + 1], weights[layer]
            )
            del activations[layer], grad_activations[layer + 1]
            shard = await model.scatterreduce(grad_weights["full"], layer)
            del grad_weights["full"]
            grad_weights[layer] = grad_weights[layer] + shard if layer in grad_weights else shard
        del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        weights[layer] = await model.allgather(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    return model

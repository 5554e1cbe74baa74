"""ZeRO-2 that drops a microbatch's input after its first forward, and takes it again for its last backward.

Gradients of several microbatches are added up. What is added up, shards or full gradients, decides on time and memory.
"""

from lib import Model

SUMS_FIRST = False
"""Whether full gradients are added up, and the sum is reduce-scattered, instead of each gradient."""

VARIANTS = {
    # The least memory: of each sum a rank keeps its shard only, and every microbatch is reduce-scattered.
    "shards": {"SUMS_FIRST": False},
    # ZeRO-1: one reduce-scatter for each layer, in the last microbatch's backward; until then gradients are full.
    "full_gradients": {"SUMS_FIRST": True},
}


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
            if not SUMS_FIRST:
                grad = await model.scatterreduce(grad, layer)
            grad_weights[layer] = grad_weights[layer] + grad if layer in grad_weights else grad
            del grad
            if SUMS_FIRST and batch == batches[-1]:
                grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        weights[layer] = await model.allgather(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    return model

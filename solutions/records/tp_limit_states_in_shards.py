"""Groups of two share a microbatch, and replicas keep the optimizer states in shards (ZeRO-1).

The update is between the two halves of an all-reduce, so no more is sent, and of the last half only the start counts.
The model's input is dropped after the first forward and taken again.
"""

from lib import Model


async def tp_limit(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    size = model.RANKS // model.BATCHES
    batch, part = model.rank // size, model.rank % size
    group = list(range(batch * size, (batch + 1) * size))
    replicas = list(range(part, model.RANKS, size))
    shard = part * len(replicas) + batch, model.RANKS

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, part, size)
        opt_states[layer] = opt_states[layer].shard(*shard)
    activations[0] = model.get_activation([batch])

    for layer in range(model.LAYERS):
        activations["part"] = model.forward(layer, activations[layer], weights[layer])
        activations[layer + 1] = await model.allreduce(activations["part"], layer + 1, group=group)
        del activations["part"]
        activations.pop(0, None)
    grad_activations[model.LAYERS - 1] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            activations[0] = model.get_activation([batch])
        grad_weights[layer], grad_activations["part"] = model.backward(
            layer, activations[layer], grad_activations[layer], weights[layer]
        )
        del activations[layer], grad_activations[layer]
        if layer:  # nobody needs the gradient of the model's input
            grad_activations[layer - 1] = await model.allreduce(grad_activations["part"], layer - 1, group=group)
        del grad_activations["part"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group=replicas)
        weights[layer] = weights[layer].shard(*shard)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        del grad_weights[layer]
        weights[layer] = await model.allgather(weights[layer], layer, group=replicas)
        model.set_final_weight(layer, weights[layer])
    return model

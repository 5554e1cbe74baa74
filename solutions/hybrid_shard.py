"""Hybrid sharding: weights in shards within a machine, and the gradients' shards summed between machines."""

from lib import Model


async def hybrid_shard(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    place, places = model.index("shard"), len(model.axis("shard"))

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, place, places)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        weights["full"] = await model.allgather(weights[layer], layer, group="shard")
        activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        del weights["full"]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        weights["full"] = await model.allgather(weights[layer], layer, group="shard")
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["full"]
        )
        del activations[layer], grad_activations[layer + 1], weights["full"]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer, group="shard")
    del grad_activations[0]

    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer, group="replica")
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

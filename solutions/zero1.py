"""ZeRO-1: whole weights on every rank, optimizer states in shards, the update between the halves of the all-reduce."""

from lib import Model


async def zero1(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer)
        opt_states[layer] = opt_states[layer].shard(model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        activations[layer + 1] = model.forward(layer, activations[layer], weights[layer])
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    for layer in reversed(range(model.LAYERS)):
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights[layer]
        )
        del activations[layer], grad_activations[layer + 1]
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer] = weights[layer].shard(model.rank, model.RANKS)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        weights[layer] = await model.allgather(weights[layer], layer)
        model.set_final_weight(layer, weights[layer])
    return model

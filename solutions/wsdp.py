"""Weight-sharded data parallel: each rank keeps a shard of every weight and gathers the full one when needed."""

from lib import Model


async def wsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    # One full weight at a time: gathered, used, deleted.
    for layer in range(model.LAYERS):
        weights["full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        del weights["full"]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])

    for layer in reversed(range(model.LAYERS)):
        weights["full"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["full"]
        )
        del activations[layer], grad_activations[layer + 1], weights["full"]
    del grad_activations[0]

    # The gradients are still whole on every rank; the next puzzle saves that memory.
    for layer in range(model.LAYERS):
        grad_weights[layer] = await model.allreduce(grad_weights[layer], layer)
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

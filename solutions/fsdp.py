"""Fully sharded data parallel: weights, optimizer states and gradients all live in shards (ZeRO-3)."""

from lib import Model


async def fsdp(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation([model.rank])

    for layer in range(model.LAYERS):
        weights["full"] = await model.allgather(weights[layer], layer)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        del weights["full"]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    # A full gradient exists only between its backward and its reduce-scatter.
    for layer in reversed(range(model.LAYERS)):
        weights["full"] = await model.allgather(weights[layer], layer)
        grad_weights[layer], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["full"]
        )
        grad_weights[layer] = await model.scatterreduce(grad_weights[layer], layer)
        del activations[layer], grad_activations[layer + 1], weights["full"]
    del grad_activations[0]

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

"""FSDP over InfiniBand: all microbatches of a rank in one pass, so that each gather hides behind four forwards."""

from lib import Model


async def fsdp_bound(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    top, each = model.LAYERS - 1, model.BATCHES // model.RANKS
    mine = range(model.rank * each, (model.rank + 1) * each)

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)
    activations[0] = model.get_activation(mine)

    gather = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights["full"] = await gather
        if layer < top:
            gather = model.allgather(weights[layer + 1], layer + 1)
        activations[layer + 1] = model.forward(layer, activations[layer], weights["full"])
        if layer == 0:
            del activations[0]
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    scatter = None
    for layer in reversed(range(model.LAYERS)):
        if layer:
            gather = model.allgather(weights[layer - 1], layer - 1)
        else:
            activations[0] = model.get_activation(mine)
        grad_weights["full"], grad_activations[layer] = model.backward(
            layer, activations[layer], grad_activations[layer + 1], weights["full"]
        )
        del activations[layer], grad_activations[layer + 1], weights["full"]
        if scatter is not None:
            grad_weights[layer + 1] = await scatter
        scatter = model.scatterreduce(grad_weights["full"], layer)
        del grad_weights["full"]
        if layer:
            weights["full"] = await gather
    del grad_activations[0]
    grad_weights[0] = await scatter

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model

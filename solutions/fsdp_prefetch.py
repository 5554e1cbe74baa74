"""FSDP with prefetching: the next weight is gathered, and the last gradient scattered, while a layer computes.

The model's input is dropped after the first forward and taken again, which leaves room for two full weights.
"""

from lib import Model


async def fsdp_prefetch(model: Model) -> Model:
    weights, opt_states, activations, grad_activations, grad_weights = model.storage()
    top = model.LAYERS - 1

    for layer in range(model.LAYERS):
        weights[layer], opt_states[layer] = model.load_weights(layer, model.rank, model.RANKS)

    gather = model.allgather(weights[0], 0)
    for layer in range(model.LAYERS):
        weights["full"] = await gather
        if layer < top:
            gather = model.allgather(weights[layer + 1], layer + 1)
        inp = activations[layer] if layer else model.get_activation([model.rank])
        activations[layer + 1] = model.forward(layer, inp, weights["full"])
        del inp
    grad_activations[model.LAYERS] = model.loss(activations[model.LAYERS])
    del activations[model.LAYERS]

    # The last layer's weight is still here. In the lane, each gather goes before the scatter of the layer above it.
    scatter = None
    for layer in reversed(range(model.LAYERS)):
        inp = activations.pop(layer) if layer else model.get_activation([model.rank])
        if layer:
            gather = model.allgather(weights[layer - 1], layer - 1)
        grad_weights["full"], grad_activations[layer] = model.backward(
            layer, inp, grad_activations[layer + 1], weights["full"]
        )
        del inp, grad_activations[layer + 1], weights["full"]
        if scatter is not None:
            grad_weights[layer + 1] = await scatter
        scatter = model.scatterreduce(grad_weights["full"], layer)
        del grad_weights["full"]
        if layer:
            weights["full"] = await gather
    del grad_activations[0]

    for layer in reversed(range(model.LAYERS)):
        if layer == 0:
            grad_weights[0] = await scatter
        weights[layer], opt_states[layer] = model.update(layer, grad_weights[layer], weights[layer], opt_states[layer])
        model.set_final_weight(layer, weights[layer])
    return model
